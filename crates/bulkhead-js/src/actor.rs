//! A plug's thread, and what runs on it.
//!
//! ```text
//! commands ─▶ idle ──▶ a handler: call it, drive the isolate until its promise is settled ──▶ answer ─▶ idle
//!              └─ meanwhile: timers, streams and whatever else the plug left going
//! ```
//!
//! A handler has a time limit. Where the plug waits, the actor itself ends the waiting; where it spins, whoever asked
//! ends it through the isolate's handle, and the actor answers where it was.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bulkhead_engine::{EngineError, Handle, Place, Value};
use bulkhead_host::Host;
use tokio::sync::{mpsc, oneshot};

use crate::{inside::Inside, logger::Logger, native::Native, outside::Outside};

/// Native recursion of V8 needs more than Rust's default.
const STACK_BYTES: usize = 8 << 20;

/// What can go wrong with a plug's code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{handler} took longer than its limit of {limit:?}{}", was_at(.place))]
    TimeLimit {
        handler: &'static str,
        limit: Duration,
        place: Option<Place>,
    },
    #[error("the thread of the plug has ended")]
    Gone,
    #[error("{handler} did not stop when it was told to: the plug is in a loop of V8's own")]
    Stuck { handler: &'static str },
}

fn was_at(place: &Option<Place>) -> String {
    place
        .as_ref()
        .map_or_else(String::new, |place| format!("; it was at {place}"))
}

/// A handler to call.
pub(crate) struct Call {
    pub(crate) handler: &'static str,
    pub(crate) arguments: Vec<Value>,
    pub(crate) limit: Duration,
    pub(crate) answer: oneshot::Sender<Result<Value, Failure>>,
}

pub(crate) enum Command {
    /// What the handlers of the session have.
    Enter(Option<Arc<dyn Host>>),
    Call(Call),
}

/// What the module's default export said of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Offer {
    pub(crate) on_message: bool,
    pub(crate) limits: Limits,
}

/// The limits that a plug asks for itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) on_session: Option<Duration>,
    pub(crate) on_message: Option<Duration>,
    pub(crate) teardown: Option<Duration>,
}

/// The other end of a plug's thread. Dropping it ends the thread, at the latest when its code stops running.
pub(crate) struct Actor {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) aborts: mpsc::UnboundedSender<String>,
    pub(crate) handle: Handle,
    pub(crate) log: Logger,
    outside: Outside,
    /// Settled when the thread has ended.
    gone: Option<oneshot::Receiver<()>>,
    /// Set once the plug did not stop when it was told to: it is not asked for anything again.
    stuck: AtomicBool,
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.outside.end();
        self.handle.terminate();
    }
}

/// Starts a thread for a plug, and loads its module there.
pub(crate) async fn start(
    file: PathBuf,
    load_limit: Duration,
) -> Result<(Actor, Offer), StartFailure> {
    let outside = Outside::new(tokio::runtime::Handle::current());
    let (log, lines) = Logger::new();
    let (commands, receiver) = mpsc::channel(4);
    let (aborts, aborted) = mpsc::unbounded_channel();
    let (begun, beginning) = oneshot::channel();
    let (loaded, loading) = oneshot::channel();
    let (alive, gone) = oneshot::channel();
    let (runtime, inside) = (outside.runtime().clone(), (outside.clone(), log.clone()));
    on_thread(alive, move || {
        runtime.block_on(async move {
            let native = Native::new(inside.0, inside.1);
            match Inside::begin(native, receiver, aborted) {
                Ok((inside, handle)) => {
                    // Where nobody waits any more, there is nothing to do.
                    let _ = begun.send(Ok(handle));
                    inside.live(&file, load_limit, loaded).await;
                }
                Err(error) => drop(begun.send(Err(error))),
            }
        });
    })?;
    let begun = beginning.await.map_err(|_| Failure::Gone)?;
    let actor = Actor {
        commands,
        aborts,
        handle: begun.map_err(Failure::from)?,
        log,
        outside,
        gone: Some(gone),
        stuck: AtomicBool::new(false),
    };
    actor.log.keep(lines);
    let offer = actor.within("loading", load_limit, loading).await?;
    Ok((actor, offer))
}

/// Runs something on a thread of its own; `alive` is dropped when the thread ends, whatever ends it.
fn on_thread(
    alive: oneshot::Sender<()>,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), StartFailure> {
    std::thread::Builder::new()
        .name("plug".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let _alive = alive;
            run();
        })
        .map(drop)
        .map_err(StartFailure::Thread)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StartFailure {
    #[error("starting a thread for the plug")]
    Thread(#[source] std::io::Error),
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl Actor {
    /// Calls a handler and waits for its answer.
    pub(crate) async fn call(
        &self,
        handler: &'static str,
        arguments: Vec<Value>,
        limit: Duration,
    ) -> Result<Value, Failure> {
        if self.stuck.load(Ordering::Relaxed) {
            return Err(Failure::Stuck { handler });
        }
        let (answer, answered) = oneshot::channel();
        let call = Call {
            handler,
            arguments,
            limit,
            answer,
        };
        let sent = self.commands.send(Command::Call(call)).await;
        sent.map_err(|_| Failure::Gone)?;
        let outcome = self.within(handler, limit, answered).await;
        self.log.flushed().await;
        outcome
    }

    /// Waits for an answer, and ends what runs where it does not come: first what spins, and then the waiting.
    async fn within<T>(
        &self,
        handler: &'static str,
        limit: Duration,
        mut answered: oneshot::Receiver<Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let gone = |_| Err(Failure::Gone);
        if let Ok(answer) = tokio::time::timeout(limit + GRACE, &mut answered).await {
            return answer.unwrap_or_else(gone);
        }
        self.handle.terminate();
        match tokio::time::timeout(STOP, &mut answered).await {
            Ok(answer) => answer.unwrap_or_else(gone),
            Err(_) => {
                self.stuck.store(true, Ordering::Relaxed);
                Err(Failure::Stuck { handler })
            }
        }
    }

    pub(crate) async fn enter(&self, host: Option<Arc<dyn Host>>) -> Result<(), Failure> {
        let sent = self.commands.send(Command::Enter(host)).await;
        sent.map_err(|_| Failure::Gone)
    }

    pub(crate) fn outside(&self) -> &Outside {
        &self.outside
    }

    /// Ends the thread and waits for that, as long as it may take what runs there to stop.
    pub(crate) async fn end(mut self) {
        let gone = self.gone.take();
        drop(self);
        if let Some(gone) = gone {
            // Over that time it is in a loop of V8's own, and ends with the process.
            let _ = tokio::time::timeout(STOP, gone).await;
        }
    }
}

/// How much longer than a handler's limit it takes until what runs counts as spinning.
const GRACE: Duration = Duration::from_millis(200);
/// How long what is told to end may take.
const STOP: Duration = Duration::from_secs(2);

/// How much longer than its limit a handler can take until it is answered for.
pub(crate) const BEYOND_LIMIT: Duration = Duration::from_secs(8);
