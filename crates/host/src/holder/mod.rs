//! Processes behind walls that somebody else has built: a container's, or those of bubblewrap on another machine.
//!
//! What stands there is a holder, the mode `hold` of our static helper, at the other end of one stream of bytes. Through it
//! go all processes with their streams, so that exit statuses, signals, groups and terminals are exact on every engine, and
//! a start costs one message instead of a request to the engine. The holder's end is its processes' end: they cannot outlive
//! the connection.
//!
//! ```text
//! spawn ─▶ orders ─┐                         ┌─▶ process table: started, exited
//!                  ├─▶ writer ─▶ … ─▶ reader ┤
//! input ─▶ data ───┘                         └─▶ outputs (each at most a window ahead of its reader)
//! ```

mod control;
mod forward;
mod link;
mod place;
mod process;
mod table;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use bulkhead_init::wire::{IoKind, Order};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

pub(crate) use self::place::{Place, files};
use self::{link::Link, process::Starting};
use crate::{Command, DuplexStream, Endpoint, HostError, Listener, Process, Stdio, Stream};

/// A machine that answers at all answers in this time, however loaded it is.
const READY_IN: Duration = Duration::from_secs(60);

/// A connection to a holder. Dropping it ends the holder, and with it its processes.
#[derive(Debug)]
pub(crate) struct Holder {
    link: Arc<Link>,
}

/// How often the host says that it is there, for holders that end when they hear nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    Never,
    Every(Duration),
}

impl Beat {
    /// Often enough that a few beats may be late.
    pub(crate) fn for_loss_after(silence: Option<Duration>) -> Self {
        silence.map_or(Self::Never, |silence| Self::Every(silence / 5))
    }
}

/// The helper's arguments for a holder that ends after such a silence, where there is one.
pub(crate) fn arguments(silence: Option<Duration>) -> Vec<String> {
    let silence = silence.map(|silence| silence.as_millis().to_string());
    std::iter::once("hold".to_owned()).chain(silence).collect()
}

impl Holder {
    /// Takes over the streams of a holder that was just started; `host` names its machine in errors.
    pub(crate) async fn connect(
        host: String,
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
        beat: Beat,
    ) -> Result<Self, HostError> {
        let link = Link::start(host, from, to, beat);
        let held = Self {
            link: Arc::clone(&link),
        };
        match timeout(READY_IN, link.ready()).await {
            Ok(true) => Ok(held),
            Ok(false) | Err(_) => Err(HostError::Gone {
                host: link.host().to_owned(),
            }),
        }
    }

    pub(crate) async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        Starting::run(Arc::clone(&self.link), command).await
    }

    /// A stream to an endpoint of the holder's place.
    pub(crate) async fn stream_to(&self, to: Endpoint) -> Result<DuplexStream, HostError> {
        forward::connect(&self.link, to).await
    }

    /// A listening endpoint of the holder's place.
    pub(crate) async fn listen_at(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        forward::listen(&self.link, at).await
    }

    /// Ends the connection without waiting for the holder.
    pub(crate) fn cut(&self) {
        self.link.cut();
    }

    /// Ends the connection, and so the holder and its processes.
    pub(crate) async fn end(&self) {
        self.link.end().await;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.cut();
    }
}

fn order(process: u32, command: Command) -> Order {
    let bytes = |texts: Vec<String>| texts.into_iter().map(String::into_bytes).collect();
    let env = command.env.into_iter();
    let (io, rows, columns) = match command.stdio {
        Stdio::Terminal(size) => (vec![IoKind::Terminal {}], size.rows, size.columns),
        Stdio::Streams {
            stdin,
            stdout,
            stderr,
        } => ([stdin, stdout, stderr].map(kind).to_vec(), 0, 0),
    };
    Order::Spawn {
        process,
        argv: bytes(command.argv),
        env: bytes(env.map(|(name, value)| format!("{name}={value}")).collect()),
        cwd: command.cwd.unwrap_or_default().into_bytes(),
        io,
        rows,
        columns,
    }
}

const fn kind(stream: Stream) -> IoKind {
    match stream {
        Stream::Null => IoKind::Null {},
        Stream::Pipe => IoKind::Passed {},
    }
}
