//! The session process's main: from the order to the report.

use std::{os::fd::OwnedFd, sync::Arc};

use bulkhead_model::Stage;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    sync::mpsc,
};
use tokio_util::task::TaskTracker;

use crate::{
    agent::{Reason, Stops},
    outbox::Outbox,
    phase::perform,
    plug::ScriptPlugs,
    wire::{ArtifactChunk, Delivery, FromSession, Incoming, Outgoing, ToSession, WireError},
};

/// Artifact chunks that wait to be written into the sandbox.
const ARTIFACT_QUEUE: usize = 4;

/// The session could not even speak with its executor.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("taking over the socket to the executor")]
    Socket(#[source] std::io::Error),
    #[error("making the session's memory unreadable for other processes")]
    Dumpable(#[source] std::io::Error),
    #[error("speaking with the executor")]
    Wire(#[from] WireError),
    #[error("the executor closed the socket before it sent an order")]
    NoOrder,
    #[error("the executor's first message is not an order")]
    NotAnOrder,
}

/// Carries out one phase: reads the order from `socket` (a connected Unix stream socket, which the
/// executor passes as the process's standard input), and returns when the report is sent and nothing of the
/// sandbox is left. `scripts` runs the session's script plugs, where the program can. An error of the phase is in the report; an error here means that nobody could be told.
pub async fn run_worker(
    socket: OwnedFd,
    scripts: Arc<dyn ScriptPlugs>,
) -> Result<(), SessionError> {
    // Before the first secret arrives (D7).
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| SessionError::Dumpable(error.into()))?;
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true).map_err(SessionError::Socket)?;
    let socket = UnixStream::from_std(socket).map_err(SessionError::Socket)?;
    let (reader, writer) = socket.into_split();
    converse(reader, writer, scripts).await
}

/// The session's side of the conversation, over any pair of streams.
async fn converse<R, W>(
    reader: R,
    writer: W,
    scripts: Arc<dyn ScriptPlugs>,
) -> Result<(), SessionError>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    // Phases have none: what a workflow's author writes is no code of the runner's owner.
    let _ = scripts;
    let mut incoming = Incoming::<_, ToSession>::new(reader);
    let delivery = read_order(&mut incoming).await?;
    let (stops, tasks) = (Stops::default(), TaskTracker::new());
    let (out, queue) = Outbox::new(delivery.order.limits.log_bytes);
    let (artifacts_sender, artifacts) = mpsc::channel(ARTIFACT_QUEUE);
    let listening = tasks.spawn(listen(incoming, artifacts_sender, stops.clone()));
    let speaking = speak(Outgoing::new(writer), queue, stops.clone());
    let working = async {
        out.stage(Stage::SessionStarted).await;
        let report = perform(Arc::from(delivery), artifacts, out.clone(), &stops).await;
        out.report(report).await;
        drop(out);
    };
    let ((), spoken) = tokio::join!(working, speaking);
    listening.abort();
    spoken
}

async fn read_order<R: AsyncRead + Unpin>(
    incoming: &mut Incoming<R, ToSession>,
) -> Result<Box<Delivery>, SessionError> {
    match incoming.next().await? {
        Some(ToSession::Order(delivery)) => Ok(delivery),
        Some(_) => Err(SessionError::NotAnOrder),
        None => Err(SessionError::NoOrder),
    }
}

/// Passes on what the executor says until it is gone, which ends the phase.
async fn listen<R: AsyncRead + Unpin>(
    mut incoming: Incoming<R, ToSession>,
    artifacts: mpsc::Sender<ArtifactChunk>,
    stops: Stops,
) {
    loop {
        match incoming.next().await {
            Ok(Some(ToSession::Cancel)) => stops.stop(Reason::Cancelled),
            // Where the plug does not take artifacts any more, the phase is ending.
            Ok(Some(ToSession::Artifact(chunk))) => drop(artifacts.send(chunk).await),
            Ok(Some(ToSession::Order(_)) | None) | Err(_) => break,
        }
    }
    stops.stop(Reason::ExecutorGone);
}

/// Writes what the session says. When the executor does not take it any more, the phase ends and the rest is
/// let go.
async fn speak<W: AsyncWrite + Unpin>(
    mut outgoing: Outgoing<W, FromSession>,
    mut queue: mpsc::Receiver<FromSession>,
    stops: Stops,
) -> Result<(), SessionError> {
    let mut result = Ok(());
    while let Some(message) = queue.recv().await {
        if result.is_ok()
            && let Err(error) = outgoing.send(message).await
        {
            stops.stop(Reason::ExecutorGone);
            result = Err(error.into());
        }
    }
    result
}
