//! The session process's main: from the order to the report.

use std::{os::fd::OwnedFd, sync::Arc};

use bulkhead_model::Stage;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    sync::{Notify, mpsc},
};
use tokio_util::task::TaskTracker;

use crate::{
    agent::{Asked, PROMPTS, Reason, Stops},
    outbox::Outbox,
    phase,
    plug::ScriptPlugs,
    session,
    wire::{
        ArtifactChunk, Delivery, FromSession, Incoming, Outgoing, PromptSource, SessionDelivery,
        ToSession, WireError,
    },
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

/// Carries out one phase or session: reads the order from `socket` (a connected Unix stream socket, which the
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
    Box::pin(converse(reader, writer, scripts)).await
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
    let mut incoming = Incoming::<_, ToSession>::new(reader);
    let assignment = read_order(&mut incoming).await?;
    let (stops, tasks) = (Stops::default(), TaskTracker::new());
    let (out, queue) = Outbox::new(assignment.log_bytes());
    let (artifacts_sender, artifacts) = mpsc::channel(ARTIFACT_QUEUE);
    let (prompts_sender, prompts) = mpsc::channel(PROMPTS);
    let ears = Ears {
        artifacts: artifacts_sender,
        prompts: Some(prompts_sender),
        give_up: Arc::default(),
        stops: stops.clone(),
    };
    let give_up = Arc::clone(&ears.give_up);
    let listening = tasks.spawn(listen(incoming, ears));
    let speaking = speak(Outgoing::new(writer), queue, stops.clone());
    let working = async {
        out.stage(Stage::SessionStarted).await;
        let report = match assignment {
            // Phases have no scripts: what a workflow's author writes is no code of the runner's owner.
            Assignment::Phase(delivery) => {
                phase::perform(Arc::from(delivery), artifacts, out.clone(), &stops).await
            }
            Assignment::Session(delivery) => {
                let asked = match delivery.order.prompts {
                    PromptSource::None => Asked::nothing(),
                    PromptSource::Person => Asked::by(prompts, give_up, out.clone()),
                };
                let perform = session::perform(*delivery, &*scripts, out.clone(), asked, &stops);
                Box::pin(perform).await
            }
        };
        out.report(report).await;
        drop(out);
    };
    let ((), spoken) = tokio::join!(working, speaking);
    listening.abort();
    spoken
}

/// What the session is to do.
enum Assignment {
    Phase(Box<Delivery>),
    Session(Box<SessionDelivery>),
}

impl Assignment {
    fn log_bytes(&self) -> u64 {
        match self {
            Self::Phase(delivery) => delivery.order.limits.log_bytes,
            // A person's own session: what they see is theirs to judge.
            Self::Session(_) => u64::MAX,
        }
    }
}

/// Where what the executor says goes.
struct Ears {
    artifacts: mpsc::Sender<ArtifactChunk>,
    /// None once nothing more is to be said.
    prompts: Option<mpsc::Sender<String>>,
    give_up: Arc<Notify>,
    stops: Stops,
}

async fn read_order<R: AsyncRead + Unpin>(
    incoming: &mut Incoming<R, ToSession>,
) -> Result<Assignment, SessionError> {
    match incoming.next().await? {
        Some(ToSession::Order(delivery)) => Ok(Assignment::Phase(delivery)),
        Some(ToSession::Session(delivery)) => Ok(Assignment::Session(delivery)),
        Some(_) => Err(SessionError::NotAnOrder),
        None => Err(SessionError::NoOrder),
    }
}

/// Passes on what the executor says until it is gone, which ends the phase.
async fn listen<R: AsyncRead + Unpin>(mut incoming: Incoming<R, ToSession>, mut ears: Ears) {
    let stops = ears.stops.clone();
    loop {
        match incoming.next().await {
            Ok(Some(ToSession::Cancel)) => stops.stop(Reason::Cancelled),
            // Where the plug does not take artifacts any more, the phase is ending.
            Ok(Some(ToSession::Artifact(chunk))) => drop(ears.artifacts.send(chunk).await),
            // The empty prompt is the end of all prompts.
            Ok(Some(ToSession::Prompt(text))) if text.is_empty() => ears.prompts = None,
            Ok(Some(ToSession::Prompt(text))) => {
                if let Some(prompts) = &ears.prompts {
                    drop(prompts.send(text).await);
                }
            }
            Ok(Some(ToSession::GiveUpTurn)) => ears.give_up.notify_one(),
            Ok(Some(ToSession::Pause)) => stops.stop(Reason::Paused),
            Ok(Some(ToSession::Order(_) | ToSession::Session(_)) | None) | Err(_) => break,
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
