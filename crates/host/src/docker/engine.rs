//! The engine's interface over streams of the host before this one, so that it works wherever that host is (H4).

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker, errors::Error};
use hyper::{
    Request, Response, Uri,
    body::{Body, Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;

use crate::{Endpoint, Host};

/// Connections that are kept for the next request.
const IDLE_MAX: usize = 4;
/// Until the engine answers; a pull reports progress meanwhile.
const ANSWER_IN: Duration = Duration::from_secs(120);

/// The engine that listens at `socket` on `outer`. Nothing is connected yet.
pub(super) fn engine(outer: Arc<dyn Host>, socket: PathBuf) -> Result<Docker, Error> {
    let connector = Arc::new(Connector {
        outer,
        socket,
        idle: Mutex::new(Vec::new()),
        tasks: TaskTracker::new(),
    });
    let send = move |request: BollardRequest| {
        let connector = Arc::clone(&connector);
        async move { connector.send(request).await }
    };
    Docker::connect_with_custom_transport(
        send,
        Some("http://engine"),
        ANSWER_IN.as_secs(),
        API_DEFAULT_VERSION,
    )
}

struct Connector<B> {
    outer: Arc<dyn Host>,
    socket: PathBuf,
    idle: Mutex<Vec<SendRequest<B>>>,
    /// The connections' own tasks: each ends with its connection.
    tasks: TaskTracker,
}

impl<B> Connector<B>
where
    B: Body<Data = Bytes, Error = Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    async fn send(&self, request: Request<B>) -> Result<Response<Incoming>, Error> {
        let mut request = in_origin_form(request)?;
        while let Some(mut kept) = self.kept() {
            match kept.try_send_request(request).await {
                Ok(response) => {
                    self.keep(kept);
                    return Ok(response);
                }
                // The engine had closed it meanwhile; nothing of the request was sent.
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(refused.into_error().into()),
                },
            }
        }
        let mut fresh = self.connect().await?;
        let response = fresh.send_request(request).await?;
        self.keep(fresh);
        Ok(response)
    }

    async fn connect(&self) -> Result<SendRequest<B>, Error> {
        let to = Endpoint::Unix(self.socket.clone());
        let stream = self.outer.connect(to).await.map_err(io::Error::other)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        self.tasks.spawn(async move {
            // How a connection ended is told to whoever waits for a response on it.
            let _ = connection.with_upgrades().await;
        });
        Ok(sender)
    }

    fn kept(&self) -> Option<SendRequest<B>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        let ready = idle.iter().position(SendRequest::is_ready)?;
        Some(idle.swap_remove(ready))
    }

    /// It becomes ready once the response's body was read.
    fn keep(&self, sender: SendRequest<B>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
    }
}

fn in_origin_form<B>(mut request: Request<B>) -> Result<Request<B>, Error> {
    let path = request.uri().path_and_query().cloned();
    let uri = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    *request.uri_mut() = uri;
    let host = HeaderValue::from_static("engine");
    request.headers_mut().insert(HOST, host);
    Ok(request)
}
