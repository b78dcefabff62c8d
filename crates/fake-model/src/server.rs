//! The HTTP side.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;

use crate::{Script, anthropic, gemini, openai};

type Frames = std::pin::Pin<
    Box<dyn stream::Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send + Sync>,
>;

/// An answer in an API's form.
pub(crate) enum Reply {
    Json(u16, Value),
    /// Server-sent events: a name where the API names them, and data.
    Events(Vec<(Option<&'static str>, Value)>),
}

/// One request that the model got.
#[derive(Debug, Clone)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A fake model on a loopback port of its own; it ends when it is dropped.
#[derive(Debug)]
pub struct FakeModel {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    _serving: AbortOnDropHandle<()>,
}

impl FakeModel {
    pub async fn start(script: Script) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::default();
        let serving = serve(listener, Arc::new(script), Arc::clone(&seen));
        #[expect(
            clippy::disallowed_methods,
            reason = "the handle ends it with the fake model"
        )]
        let serving = AbortOnDropHandle::new(tokio::spawn(serving));
        Ok(Self {
            address,
            seen,
            _serving: serving,
        })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was asked so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn serve(listener: TcpListener, script: Arc<Script>, seen: Arc<Mutex<Vec<Seen>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
        let service = service_fn(move |request: Request<Incoming>| {
            let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
            async move { Ok::<_, Infallible>(answer(&script, &seen, request).await) }
        });
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one request, for servers of a test's own. A broken stream ends with an error of its body.
pub async fn answer<B: Body>(
    script: &Script,
    seen: &Mutex<Vec<Seen>>,
    request: Request<B>,
) -> Response<BoxBody<Bytes, std::io::Error>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes());
    let body = body.unwrap_or_default();
    let number = seen.lock().unwrap_or_else(PoisonError::into_inner).len();
    let path = head.uri.path().to_owned();
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut requests = seen.lock().unwrap_or_else(PoisonError::into_inner);
    requests.push(Seen {
        path: path.clone(),
        headers: head.headers,
        body,
    });
    drop(requests);
    if let Script::Fail { status } = script {
        let error = json!({"type": "error", "error": {"type": "api_error", "message": "fake failure",
                           "code": status, "status": "INTERNAL"}});
        return response(Reply::Json(*status, error), script);
    }
    response(reply(script, &path, &json, number), script)
}

/// `number` makes the ids of each answer its own.
fn reply(script: &Script, path: &str, body: &Value, number: usize) -> Reply {
    if path.ends_with("/messages") {
        anthropic::messages(script, body, number)
    } else if path.ends_with("/count_tokens") {
        Reply::Json(200, json!({"input_tokens": 10}))
    } else if path.ends_with("/responses") {
        openai::responses(script, body, number)
    } else if path.ends_with("/chat/completions") {
        openai::chat_completions(script, body, number)
    } else if path.ends_with(":streamGenerateContent") {
        gemini::generate(script, body, number, true)
    } else if path.ends_with(":generateContent") {
        gemini::generate(script, body, number, false)
    } else if path.ends_with(":countTokens") {
        Reply::Json(200, json!({"totalTokens": 10}))
    } else {
        Reply::Json(200, json!({"data": [], "models": []}))
    }
}

fn response(reply: Reply, script: &Script) -> Response<BoxBody<Bytes, std::io::Error>> {
    let (status, kind, body) = match reply {
        Reply::Json(status, json) => {
            let body = Full::new(Bytes::from(json.to_string()));
            (
                status,
                "application/json",
                body.map_err(|never| match never {}).boxed(),
            )
        }
        Reply::Events(events) => (200, "text/event-stream", event_stream(events, script)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    let kind = http::HeaderValue::from_static(kind);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    response
}

fn event_stream(
    events: Vec<(Option<&'static str>, Value)>,
    script: &Script,
) -> BoxBody<Bytes, std::io::Error> {
    let pause = script.pause();
    let mut pieces: Vec<_> = events.into_iter().map(|event| Ok(text(event))).collect();
    if matches!(script, Script::Broken) {
        pieces.truncate(2);
        pieces.push(Err(std::io::Error::other("the stream breaks here")));
    }
    let frames = stream::iter(pieces).then(move |piece| async move {
        tokio::time::sleep(pause).await;
        piece.map(|text| Frame::data(Bytes::from(text)))
    });
    let frames: Frames = Box::pin(frames);
    http_body_util::BodyExt::boxed(StreamBody::new(frames))
}

fn text((name, data): (Option<&'static str>, Value)) -> String {
    let data = match data {
        Value::String(plain) => plain,
        json => json.to_string(),
    };
    match name {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}
