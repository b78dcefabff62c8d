//! The container engine's API by hand: an exec is created, started, read and looked at, and nothing else.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, net::UnixStream, task::JoinSet};

pub(crate) struct RawEngine {
    socket: PathBuf,
    container: String,
    /// Kept open for all requests but the one that becomes the exec's streams.
    kept: SendRequest<Full<Bytes>>,
    connections: JoinSet<()>,
}

impl RawEngine {
    pub(crate) async fn connect(socket: &Path, container: &str) -> Result<Self> {
        let mut connections = JoinSet::new();
        Ok(Self {
            socket: socket.to_owned(),
            container: container.to_owned(),
            kept: open(socket, &mut connections).await?,
            connections,
        })
    }

    pub(crate) async fn echo(&mut self) -> Result<Duration> {
        let started = Instant::now();
        let path = format!("/containers/{}/exec", self.container);
        let body =
            json!({"Cmd": ["/usr/bin/echo", "hello"], "AttachStdout": true, "AttachStderr": true});
        let exec = self.ask(Method::POST, &path, &body).await?;
        let id = exec["Id"].as_str().context("the exec has no id")?;
        let text = self.output(id).await?;
        let seen = self
            .ask(Method::GET, &format!("/exec/{id}/json"), &Value::Null)
            .await?;
        let taken = started.elapsed();
        ensure!(
            seen["ExitCode"] == 0 && text == b"hello\n",
            "{seen} {text:?}"
        );
        Ok(taken)
    }

    async fn ask(&mut self, method: Method, path: &str, body: &Value) -> Result<Value> {
        self.kept.ready().await?;
        let answer = self.kept.send_request(request(method, path, body)?).await?;
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Starts the exec on a connection of its own, and reads its standard output out of the frames.
    async fn output(&mut self, id: &str) -> Result<Vec<u8>> {
        let mut sender = open(&self.socket, &mut self.connections).await?;
        let body = json!({"Detach": false, "Tty": false});
        let mut start = request(Method::POST, &format!("/exec/{id}/start"), &body)?;
        let headers = start.headers_mut();
        headers.insert(header::CONNECTION, "Upgrade".parse()?);
        headers.insert(header::UPGRADE, "tcp".parse()?);
        let answer = sender.send_request(start).await?;
        ensure!(
            answer.status() == StatusCode::SWITCHING_PROTOCOLS,
            "{}",
            answer.status()
        );
        let mut stream = TokioIo::new(hyper::upgrade::on(answer).await?);
        let (mut bytes, mut text) = (Vec::new(), Vec::new());
        stream.read_to_end(&mut bytes).await?;
        let mut rest = &bytes[..];
        while let [_stream, _, _, _, l0, l1, l2, l3, after @ ..] = rest {
            let length = u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize;
            let (piece, next) = after.split_at_checked(length).context("a frame is cut")?;
            text.extend_from_slice(piece);
            rest = next;
        }
        Ok(text)
    }
}

async fn open(socket: &Path, connections: &mut JoinSet<()>) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TokioIo::new(UnixStream::connect(socket).await?);
    let (sender, connection) = http1::handshake(stream).await?;
    connections.spawn(async move {
        // How it ended is told to whoever waits for a response on it.
        let _ = connection.with_upgrades().await;
    });
    Ok(sender)
}

fn request(method: Method, path: &str, body: &Value) -> Result<Request<Full<Bytes>>> {
    let bytes = if body.is_null() {
        Vec::new()
    } else {
        serde_json::to_vec(body)?
    };
    Ok(Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "engine")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(bytes))?)
}
