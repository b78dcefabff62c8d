//! Servers and names. A server's answers are bytes, so that it can say what no HTTP library would.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use bulkhead_egress::{Resolve, ResolveError};
use bulkhead_model::network::HostName;
use futures::future::BoxFuture;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The request line and the headers, as text.
    pub head: String,
    pub body: Vec<u8>,
}

impl Asked {
    /// The method and the path, without the rest.
    pub fn line(&self) -> &str {
        self.head.split(" HTTP/").next().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        lines
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// One step of an answer.
#[derive(Debug, Clone)]
pub enum Step {
    Bytes(Vec<u8>),
    Wait(Duration),
    /// The same bytes until the other end has had enough, with a pause between.
    Forever(Vec<u8>, Duration),
}

impl Step {
    pub fn text(text: impl Into<String>) -> Vec<Self> {
        vec![Self::Bytes(text.into().into_bytes())]
    }

    /// A whole response with these header lines, each ended by CRLF.
    pub fn response(status: &str, headers: &str, body: &[u8]) -> Vec<Self> {
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        vec![Self::Bytes([head.as_bytes(), body].concat())]
    }
}

type Answers = dyn Fn(&Asked) -> Vec<Step> + Send + Sync;

/// Listens on a port of 127.0.0.1 until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub async fn start(answers: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::listen(None, answers).await
    }

    pub async fn tls(
        config: Arc<ServerConfig>,
        answers: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Some(config.into()), answers).await
    }

    async fn listen(
        tls: Option<TlsAcceptor>,
        answers: impl Fn(&Asked) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (log, answers) = (Arc::clone(&asked), Arc::new(answers) as Arc<Answers>);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (log, answers, tls) = (Arc::clone(&log), Arc::clone(&answers), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, &log, &*answers).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &log, &*answers).await,
                            Err(_) => None,
                        },
                    };
                });
            }
        });
        Self {
            address,
            asked,
            _tasks: tasks,
        }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    log: &Mutex<Vec<Asked>>,
    answers: &Answers,
) -> Option<()> {
    let asked = read_request(&mut stream).await?;
    log.lock().unwrap().push(asked.clone());
    for step in answers(&asked) {
        match step {
            Step::Bytes(bytes) => stream.write_all(&bytes).await.ok()?,
            Step::Wait(time) => sleep(time).await,
            Step::Forever(bytes, pause) => loop {
                stream.write_all(&bytes).await.ok()?;
                stream.flush().await.ok()?;
                sleep(pause).await;
            },
        }
        stream.flush().await.ok()?;
    }
    stream.shutdown().await.ok()
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut body = bytes.split_off(end + 4);
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let mut asked = Asked {
        head,
        body: Vec::new(),
    };
    let length = asked
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    asked.body = body;
    Some(asked)
}

/// A table of names. The answer to one name may change from question to question; its last one stays.
#[derive(Debug, Default)]
pub struct Names {
    answers: HashMap<String, Vec<Vec<IpAddr>>>,
    slow: Option<Duration>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    /// These names lead to 127.0.0.1.
    pub fn loopback(names: &[&str]) -> Self {
        let table = Self::default();
        names
            .iter()
            .fold(table, |table, name| table.with(name, &["127.0.0.1"]))
    }

    /// Adds an answer after those that the name has.
    #[must_use]
    pub fn with(mut self, name: &str, addresses: &[&str]) -> Self {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        self.answers
            .entry(name.to_owned())
            .or_default()
            .push(addresses);
        self
    }

    /// Every answer takes so long.
    #[must_use]
    pub fn slow(mut self, time: Duration) -> Self {
        self.slow = Some(time);
        self
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    async fn answer(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let before = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(name.to_owned());
            asked.iter().filter(|asked| *asked == name).count() - 1
        };
        if let Some(time) = self.slow {
            sleep(time).await;
        }
        let answers = self.answers.get(name).ok_or(ResolveError::NotFound)?;
        Ok(answers[before.min(answers.len() - 1)].clone())
    }
}

impl Resolve for Names {
    fn resolve<'a>(
        &'a self,
        name: &'a HostName,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, ResolveError>> {
        Box::pin(self.answer(name.as_str()))
    }
}
