//! A door with a name server and upstreams of its own, all on loopback.

#[path = "../../../egress/tests/it/support/dns.rs"]
#[expect(dead_code, reason = "the tests of bulkhead-egress use the rest")]
pub(crate) mod name_server;
#[path = "../../../egress/tests/it/support/tls.rs"]
pub(crate) mod tls;

use std::{
    convert::Infallible,
    net::{SocketAddr, TcpListener as StdTcpListener, UdpSocket as StdUdpSocket},
    sync::Arc,
    time::Duration,
};

use bulkhead_door::{DecisionRecord, Door, DoorConfig, DoorLimits, DoorListeners};
use bulkhead_egress::{AllowPrivate, DnsResolver, Egress, EgressConfig};
use bulkhead_model::NetworkPolicy;
use bytes::Bytes;
use futures::channel::mpsc as frames;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use name_server::{DnsServer, Reply, reply};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    task::JoinSet,
    time,
};

pub(crate) type TestBody = BoxBody<Bytes, Infallible>;

/// Names below `test.com` are on loopback, `private.test.com` is not, the rest does not exist.
pub(crate) fn zone() -> DnsServer {
    DnsServer::start(|name, _| match name {
        "private.test.com" => reply(&["10.0.0.1"]),
        "public.test.com" => reply(&["93.184.215.14", "2606:4700::1111", "10.0.0.1"]),
        "many.test.com" => {
            let all = (1..60u32).map(|n| (0x5db8_0000 + n).to_be_bytes().into());
            Reply::Addresses(all.collect())
        }
        name if name.ends_with(".test.com") => reply(&["127.0.0.1"]),
        _ => Reply::NxDomain,
    })
}

/// Hosts that the test's operator permits to be on loopback.
pub(crate) const PERMITTED: &[&str] = &[
    "good.test.com",
    "models.test.com",
    "clear.test.com",
    "gone.test.com",
    "127.0.0.1",
];

pub(crate) fn egress(dns: &DnsServer) -> Egress {
    let config = EgressConfig {
        allow_private: AllowPrivate::hosts(PERMITTED).unwrap(),
        ..EgressConfig::default()
    };
    Egress::new(config, DnsResolver::with_servers(&[dns.address]))
}

pub(crate) struct TestDoor {
    pub(crate) door: Door,
    pub(crate) proxy: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) names: DnsServer,
    pub(crate) log: mpsc::Receiver<DecisionRecord>,
}

pub(crate) fn open(allow: &[&str]) -> TestDoor {
    open_with(allow, DoorLimits::default())
}

pub(crate) fn open_with(allow: &[&str], limits: DoorLimits) -> TestDoor {
    let names = zone();
    let proxy = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let (dns_udp, dns_tcp) = both();
    let (proxy_address, dns) = (proxy.local_addr().unwrap(), dns_udp.local_addr().unwrap());
    let listeners = DoorListeners {
        proxy: Some(proxy),
        dns_udp: Some(dns_udp),
        dns_tcp: Some(dns_tcp),
        forwards: Vec::new(),
    };
    let (door, log) = door(allow, limits, &names, listeners);
    TestDoor {
        door,
        proxy: proxy_address,
        dns,
        names,
        log,
    }
}

pub(crate) fn door(
    allow: &[&str],
    limits: DoorLimits,
    names: &DnsServer,
    listeners: DoorListeners,
) -> (Door, mpsc::Receiver<DecisionRecord>) {
    let (sender, log) = mpsc::channel(64);
    let policy = NetworkPolicy::from_list(allow).unwrap();
    let config = DoorConfig {
        policy,
        egress: egress(names),
        limits,
        log: sender,
    };
    (Door::serve(config, listeners).unwrap(), log)
}

fn both() -> (StdUdpSocket, StdTcpListener) {
    loop {
        let tcp = StdTcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = StdUdpSocket::bind(tcp.local_addr().unwrap()) {
            return (udp, tcp);
        }
    }
}

/// Sends bytes, closes the sending side, and reads to the end.
pub(crate) async fn raw(to: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    read_all(&mut stream).await
}

pub(crate) async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    let reading = stream.read_to_end(&mut text);
    let _ = time::timeout(Duration::from_secs(20), reading)
        .await
        .expect("the end comes");
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads until the text so far ends like this.
pub(crate) async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut text = Vec::new();
    let reading = async {
        while !text.ends_with(end.as_bytes()) {
            text.push(stream.read_u8().await.unwrap());
        }
    };
    let done = time::timeout(Duration::from_secs(20), reading).await;
    assert!(
        done.is_ok(),
        "waited for {end:?}, have {:?}",
        String::from_utf8_lossy(&text)
    );
    String::from_utf8(text).unwrap()
}

/// Asks a proxy for a tunnel and returns the stream behind its answer.
pub(crate) async fn connect(proxy: SocketAddr, authority: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let head = read_until(&mut stream, "\r\n\r\n").await;
    (stream, head)
}

/// An upstream that shows what it was sent and streams what it is told to.
#[derive(Clone, Default)]
pub(crate) struct Upstream {
    /// `/sse` sends its second event after this.
    pub(crate) go_on: Arc<Notify>,
}

impl Upstream {
    pub(crate) async fn start(&self, tasks: &mut JoinSet<()>) -> SocketAddr {
        self.start_with(tasks, |stream| async { Some(stream) })
            .await
    }

    pub(crate) async fn start_tls(
        &self,
        config: Arc<rustls::ServerConfig>,
        tasks: &mut JoinSet<()>,
    ) -> SocketAddr {
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        self.start_with(tasks, move |stream| {
            let acceptor = acceptor.clone();
            async move { acceptor.accept(stream).await.ok() }
        })
        .await
    }

    async fn start_with<S, F>(
        &self,
        tasks: &mut JoinSet<()>,
        wrap: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> SocketAddr
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = Option<S>> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = self.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Some(stream) = wrap(stream).await else {
                    continue;
                };
                let upstream = upstream.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let upstream = upstream.clone();
                        async move { Ok::<_, Infallible>(upstream.answer(request).await) }
                    });
                    let _ = auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        address
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<TestBody> {
        match request.uri().path().rsplit('/').next().unwrap_or_default() {
            "sse" => self.events(),
            "upload" => Response::new(
                request
                    .into_body()
                    .map_err(|_| panic!("the upload broke off"))
                    .boxed(),
            ),
            "range" => range(&request),
            "redirect" => {
                let to = (header::LOCATION, "https://elsewhere.example/?k=1");
                Response::builder()
                    .status(307)
                    .header(to.0, to.1)
                    .body(full(""))
                    .unwrap()
            }
            "gzip" => Response::builder()
                .header("content-encoding", "gzip")
                .body(full("x"))
                .unwrap(),
            _ => show(request),
        }
    }

    fn events(&self) -> Response<TestBody> {
        let (sender, receiver) = frames::unbounded::<Result<Frame<Bytes>, Infallible>>();
        let go_on = Arc::clone(&self.go_on);
        // A thread of its own, because the service owns no tasks.
        std::thread::spawn(move || {
            let event = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
            let _ = sender.unbounded_send(event("data: one\n\n"));
            futures::executor::block_on(go_on.notified());
            let _ = sender.unbounded_send(event("data: two\n\n"));
        });
        let body = BodyExt::boxed(StreamBody::new(receiver));
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(body)
            .unwrap()
    }
}

pub(crate) fn full(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).boxed()
}

/// The request as it came, in lines; and everything in the response that a gateway must take out.
fn show(request: Request<Incoming>) -> Response<TestBody> {
    let mut text = format!(
        "{} {} {:?}\n",
        request.method(),
        request.uri(),
        request.version()
    );
    for (name, value) in request.headers() {
        text.push_str(&format!(
            "{name}: {}\n",
            String::from_utf8_lossy(value.as_bytes())
        ));
    }
    let echoed = request.headers().get("x-api-key").cloned();
    let mut response = Response::builder()
        .header("set-cookie", "session=1")
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("keep-alive", "timeout=5")
        .header("anthropic-organization-id", "org")
        .header("x-kept", "yes");
    if let Some(echoed) = echoed {
        response = response.header("x-echo", echoed);
    }
    response.body(full(text)).unwrap()
}

fn range(request: &Request<Incoming>) -> Response<TestBody> {
    let body = "0123456789";
    let head = |status: u16, length: usize| {
        Response::builder()
            .status(status)
            .header("content-length", length)
            .header("accept-ranges", "bytes")
    };
    if request.method() == "HEAD" {
        return head(200, body.len()).body(Empty::new().boxed()).unwrap();
    }
    match request.headers().get("range").map(|range| range.as_bytes()) {
        Some(b"bytes=2-4") => head(206, 3)
            .header("content-range", "bytes 2-4/10")
            .body(full("234"))
            .unwrap(),
        _ => head(200, body.len()).body(full(body)).unwrap(),
    }
}
