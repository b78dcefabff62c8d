//! HTTP from the runner: the plug is its owner's own code, so no address is refused to it.

use std::{rc::Rc, sync::Arc};

use bulkhead_egress::Tls;
use bulkhead_engine::{Function, Thrown, Value, later, now};
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyDataStream, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::oneshot,
    task::JoinSet,
};
use tokio_rustls::TlsConnector;
use tokio_util::io::StreamReader;
use url::Url;

use super::{
    Held, Native,
    arguments::{Arguments, chain},
};

/// As in browsers.
const MAX_REDIRECTS: usize = 20;

type Outcome = Result<Value, Thrown>;
/// The answer, and what moves its bytes as long as somebody reads them.
type Answered = (Response<Incoming>, JoinSet<hyper::Result<()>>);

pub(super) fn functions(native: &Rc<Native>) -> Vec<(&'static str, Function)> {
    let (starting, stopping) = (Rc::clone(native), Rc::clone(native));
    vec![
        (
            "fetch",
            later(move |values| start(Rc::clone(&starting), values)),
        ),
        (
            "fetchStop",
            now(move |values| {
                let id = Arguments::new(values).u32()?;
                // Dropping the sender is the news.
                stopping.fetches.borrow_mut().remove(&id);
                Ok(Value::Undefined)
            }),
        ),
    ]
}

async fn start(native: Rc<Native>, values: Vec<Value>) -> Outcome {
    let mut arguments = Arguments::new(values);
    let (id, asked) = (arguments.u32()?, Asked::read(&arguments.value())?);
    let (stop, stopped) = oneshot::channel::<()>();
    native.fetches.borrow_mut().insert(id, stop);
    let held = Arc::clone(&native.held);
    let outcome = native.outside.begin(async move {
        tokio::select! {
            outcome = fetch(&held, asked) => outcome,
            _ = stopped => Err(Thrown::new("the request was stopped")),
        }
    });
    let outcome = outcome.await;
    native.fetches.borrow_mut().remove(&id);
    outcome
}

/// What to do where the answer leads elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Redirect {
    Follow,
    Manual,
    Refuse,
}

struct Asked {
    method: Method,
    url: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Bytes>,
    redirect: Redirect,
}

impl Asked {
    fn read(value: &Value) -> Result<Self, Thrown> {
        let malformed = || Thrown::type_error("the request is malformed");
        let text = |name: &str| value.get(name).as_str().ok_or_else(malformed);
        let Value::List(headers) = value.get("headers") else {
            return Err(malformed());
        };
        let headers = headers.iter().map(|pair| match pair {
            Value::List(pair) => match pair.as_slice() {
                [Value::String(name), Value::String(value)] => header_of(name, value),
                _ => Err(malformed()),
            },
            _ => Err(malformed()),
        });
        Ok(Self {
            method: Method::from_bytes(text("method")?.as_bytes())
                .map_err(|error| chain(&error))?,
            url: Url::parse(text("url")?).map_err(|error| chain(&error))?,
            headers: headers.collect::<Result<_, _>>()?,
            body: value.get("body").as_bytes().cloned(),
            redirect: match text("redirect")? {
                "manual" => Redirect::Manual,
                "error" => Redirect::Refuse,
                _ => Redirect::Follow,
            },
        })
    }

    /// The next request, after an answer that leads to `url`.
    fn redirected(&mut self, status: StatusCode, url: Url) {
        let becomes_get = status == StatusCode::SEE_OTHER && self.method != Method::HEAD
            || matches!(status, StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND)
                && self.method == Method::POST;
        if becomes_get {
            self.method = Method::GET;
            self.body = None;
            self.headers
                .retain(|(name, _)| !name.as_str().starts_with("content-"));
        }
        if url.origin() != self.url.origin() {
            // A credential is for the one whom it was written for.
            let secret = [
                header::AUTHORIZATION,
                header::COOKIE,
                header::PROXY_AUTHORIZATION,
            ];
            self.headers.retain(|(name, _)| !secret.contains(name));
        }
        self.url = url;
    }
}

fn header_of(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Thrown> {
    let wrong = |_| Thrown::type_error(format!("the header {name} has a value that none can have"));
    let value = HeaderValue::from_str(value).map_err(wrong)?;
    let name = HeaderName::try_from(name).map_err(|error| chain(&error))?;
    Ok((name, value))
}

async fn fetch(held: &Held, mut asked: Asked) -> Outcome {
    for redirects in 0..=MAX_REDIRECTS {
        let answered = send(&asked).await?;
        let status = answered.0.status();
        let target = location(&asked.url, &answered.0);
        match (asked.redirect, target) {
            (Redirect::Follow, Some(url)) => asked.redirected(status, url),
            (Redirect::Refuse, Some(_)) => return Err(Thrown::new("the answer is a redirect")),
            _ => return answer(held, &asked, answered, redirects > 0),
        }
    }
    Err(Thrown::new(format!("more than {MAX_REDIRECTS} redirects")))
}

fn location(url: &Url, response: &Response<Incoming>) -> Option<Url> {
    let status = response.status();
    let leads = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(header::LOCATION).filter(|_| leads)?;
    url.join(location.to_str().ok()?).ok()
}

fn answer(
    held: &Held,
    asked: &Asked,
    (response, connection): Answered,
    was_redirected: bool,
) -> Outcome {
    let (head, body) = response.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        Value::List(vec![name.as_str().into(), value.into()])
    });
    let headers = Value::List(headers.collect());
    let stream = BodyDataStream::new(body)
        .map_err(std::io::Error::other)
        .inspect_ok(move |_| {
            // The connection is driven until the stream is dropped.
            let _ = &connection;
        });
    Ok(Value::object([
        ("status", Value::Number(head.status.as_u16().into())),
        (
            "statusText",
            head.status.canonical_reason().unwrap_or_default().into(),
        ),
        ("headers", headers),
        ("url", asked.url.as_str().into()),
        ("redirected", Value::Bool(was_redirected)),
        (
            "body",
            held.add_reader(Box::new(StreamReader::new(Box::pin(stream))))?,
        ),
    ]))
}

/// One request, on a connection of its own.
async fn send(asked: &Asked) -> Result<Answered, Thrown> {
    let scheme = asked.url.scheme();
    if !matches!(scheme, "http" | "https") {
        return Err(Thrown::type_error(format!(
            "fetch knows http and https, not {scheme}"
        )));
    }
    let (host, port) = (asked.url.host_str(), asked.url.port_or_known_default());
    let (Some(host), Some(port)) = (host, port) else {
        return Err(Thrown::type_error(format!("{} names no host", asked.url)));
    };
    // An IPv6 address stands in brackets in a URL, and nowhere else.
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let tcp = TcpStream::connect((address, port))
        .await
        .map_err(|error| super::streams::broken(&error))?;
    // Small requests are not to wait for more.
    let _ = tcp.set_nodelay(true);
    if scheme == "http" {
        return exchange(tcp, asked).await;
    }
    let tls = Tls::system().map_err(|error| chain(&error))?;
    let name = ServerName::try_from(address.to_owned()).map_err(|error| chain(&error))?;
    let stream = TlsConnector::from(tls.config()).connect(name, tcp).await;
    exchange(stream.map_err(|error| chain(&error))?, asked).await
}

async fn exchange<S>(stream: S, asked: &Asked) -> Result<Answered, Thrown>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| chain(&error))?;
    let mut connecting = JoinSet::new();
    connecting.spawn(connection);
    let response = sender.send_request(request(asked)?).await;
    Ok((response.map_err(|error| chain(&error))?, connecting))
}

fn request(asked: &Asked) -> Result<Request<Full<Bytes>>, Thrown> {
    let url = &asked.url;
    let mut builder = Request::builder()
        .method(asked.method.clone())
        .uri(&url[url::Position::BeforePath..url::Position::AfterQuery]);
    for (name, value) in &asked.headers {
        builder = builder.header(name, value);
    }
    let has = |name: &HeaderName| asked.headers.iter().any(|(is, _)| is == name);
    if !has(&header::HOST) {
        builder = builder.header(
            header::HOST,
            &url[url::Position::BeforeHost..url::Position::AfterPort],
        );
    }
    if !has(&header::USER_AGENT) {
        builder = builder.header(header::USER_AGENT, "bulkhead");
    }
    if !has(&header::ACCEPT) {
        builder = builder.header(header::ACCEPT, "*/*");
    }
    let needs_length = matches!(asked.method, Method::POST | Method::PUT | Method::PATCH);
    if asked.body.is_none() && needs_length {
        builder = builder.header(header::CONTENT_LENGTH, "0");
    }
    let body = Full::new(asked.body.clone().unwrap_or_default());
    builder.body(body).map_err(|error| chain(&error))
}
