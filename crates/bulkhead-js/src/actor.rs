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
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bulkhead_engine::{
    Argument, EngineError, Handle, Isolate, IsolateOptions, Place, Reference, StringsAsCode, Value,
};
use bulkhead_host::Host;
use bulkhead_session::plug::Log;
use tokio::sync::{mpsc, oneshot};

use crate::{
    loader,
    native::{self, Native},
    outside::Outside,
    prelude,
};

/// Lines of the log that wait for whoever reads them; the rest is counted.
const LOG_QUEUE: usize = 1024;
const HEAP_LIMIT_BYTES: usize = 256 << 20;
const BUFFER_LIMIT_BYTES: usize = 512 << 20;
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
    #[error("{handler} did not stop when it was told to: it is in a loop of V8's own")]
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
    let (inside_log, inside_outside) = (log.clone(), outside.clone());
    std::thread::Builder::new()
        .name("plug".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let runtime = inside_outside.runtime().clone();
            runtime.block_on(async move {
                let native = Native::new(inside_outside, inside_log);
                match Inside::begin(native, receiver, aborted) {
                    Ok((inside, handle)) => {
                        // Where nobody waits any more, there is nothing to do.
                        let _ = begun.send(Ok(handle));
                        inside.live(&file, load_limit, loaded).await;
                    }
                    Err(error) => drop(begun.send(Err(error))),
                }
            });
        })
        .map_err(StartFailure::Thread)?;
    let handle = beginning
        .await
        .map_err(|_| Failure::Gone)?
        .map_err(Failure::from)?;
    let actor = Actor {
        commands,
        aborts,
        handle,
        log,
        outside,
    };
    actor.log.keep(lines);
    let offer = actor.within("loading", load_limit, loading).await?;
    Ok((actor, offer))
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
            Err(_) => Err(Failure::Stuck { handler }),
        }
    }

    pub(crate) async fn enter(&self, host: Option<Arc<dyn Host>>) -> Result<(), Failure> {
        let sent = self.commands.send(Command::Enter(host)).await;
        sent.map_err(|_| Failure::Gone)
    }

    pub(crate) fn outside(&self) -> &Outside {
        &self.outside
    }
}

/// How much longer than a handler's limit it takes until what runs counts as spinning.
const GRACE: Duration = Duration::from_millis(200);
/// How long what is told to end may take.
const STOP: Duration = Duration::from_secs(2);

/// How much longer than its limit a handler can take until it is answered for.
pub(crate) const BEYOND_LIMIT: Duration = Duration::from_secs(4);

/// What is on the thread.
struct Inside {
    isolate: Isolate,
    native: Rc<Native>,
    commands: mpsc::Receiver<Command>,
    aborts: mpsc::UnboundedReceiver<String>,
    /// The prelude's side: `adopt`, `onSession` …
    glue: Reference,
}

impl Inside {
    fn begin(
        native: Rc<Native>,
        commands: mpsc::Receiver<Command>,
        aborts: mpsc::UnboundedReceiver<String>,
    ) -> Result<(Self, Handle), EngineError> {
        let mut isolate = Isolate::new(&IsolateOptions {
            snapshot: Some(prelude::snapshot()?),
            heap_limit_bytes: HEAP_LIMIT_BYTES,
            buffer_limit_bytes: BUFFER_LIMIT_BYTES,
            strings_as_code: StringsAsCode::Allowed,
        });
        isolate.install("native", native::functions(&native))?;
        let glue = isolate.evaluate("bulkhead:start.js", "start()")?;
        let handle = isolate.handle();
        let inside = Self {
            isolate,
            native,
            commands,
            aborts,
            glue,
        };
        Ok((inside, handle))
    }

    async fn live(
        mut self,
        file: &std::path::Path,
        limit: Duration,
        loaded: oneshot::Sender<Result<Offer, Failure>>,
    ) {
        let offer = self.load(file, limit).await;
        self.isolate.cancel_termination();
        let is_loaded = offer.is_ok();
        let is_heard = loaded.send(offer).is_ok();
        if is_loaded && is_heard {
            self.serve().await;
        }
        self.native.end();
    }

    async fn serve(&mut self) {
        loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Enter(host)) => self.native.set_host(host),
                    Some(Command::Call(call)) => self.answer(call).await,
                    None => break,
                },
                Some(words) = self.aborts.recv() => self.abort(words),
                turned = self.isolate.turn() => if let Err(error) = turned {
                    self.native.log.say(&format!("[error] {error}"));
                },
            }
            self.say_unhandled();
        }
    }

    async fn load(&mut self, file: &std::path::Path, limit: Duration) -> Result<Offer, Failure> {
        let name = loader::name_of(file)
            .ok_or_else(|| EngineError::Value("the path of a plug is absolute".to_owned()))?;
        let loaded = self.isolate.load(Rc::new(loader::Files), &name);
        let (namespace, evaluated) = loaded.map_err(|error| timed(error, "loading", limit))?;
        self.settle("loading", &evaluated, limit).await?;
        let exported = self.isolate.get(&namespace, "default")?;
        let adopt = self.isolate.get(&self.glue, "adopt")?;
        let offer = self.isolate.call(&adopt, &[Argument::from(&exported)])?;
        Ok(offer_of(&self.isolate.value(&offer)?))
    }

    async fn answer(&mut self, call: Call) {
        let outcome = self.call(&call).await;
        // What came too late to end this is not to end the next one.
        self.isolate.cancel_termination();
        self.say_unhandled();
        // Where nobody waits any more, there is nothing to do.
        let _ = call.answer.send(outcome);
    }

    async fn call(&mut self, call: &Call) -> Result<Value, Failure> {
        let arguments: Vec<Argument> = call.arguments.iter().cloned().map(Argument::from).collect();
        let function = self.isolate.get(&self.glue, call.handler)?;
        let promise = self.isolate.call(&function, &arguments);
        let promise = promise.map_err(|error| timed(error, call.handler, call.limit))?;
        let result = self.settle(call.handler, &promise, call.limit).await?;
        Ok(self.isolate.value(&result)?)
    }

    async fn settle(
        &mut self,
        handler: &'static str,
        promise: &Reference,
        limit: Duration,
    ) -> Result<Reference, Failure> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            tokio::select! {
                settled = self.isolate.settle(promise) => {
                    return settled.map_err(|error| timed(error, handler, limit));
                }
                Some(words) = self.aborts.recv() => self.abort(words),
                () = tokio::time::sleep_until(deadline) => {
                    return Err(Failure::TimeLimit { handler, limit, place: None });
                }
            }
        }
    }

    fn abort(&mut self, words: String) {
        let function = self.isolate.get(&self.glue, "abort");
        let aborted = function
            .and_then(|function| self.isolate.call(&function, &[Value::String(words).into()]));
        if let Err(error) = aborted {
            self.native
                .log
                .say(&format!("[error] in a listener of ctx.signal: {error}"));
        }
    }

    fn say_unhandled(&mut self) {
        for error in self.isolate.take_unhandled() {
            let stack = error.stack.as_deref().unwrap_or_default();
            self.native.log.say(&format!(
                "[error] nobody caught: {}\n{stack}",
                error.message
            ));
        }
    }
}

/// What was ended from outside was over its limit: nobody else ends anything.
fn timed(error: EngineError, handler: &'static str, limit: Duration) -> Failure {
    match error {
        EngineError::Terminated(place) => Failure::TimeLimit {
            handler,
            limit,
            place,
        },
        error => error.into(),
    }
}

fn offer_of(value: &Value) -> Offer {
    let limits = value.get("limits");
    let limit = |name: &str| {
        let ms = limits.get(name).as_number()?;
        Duration::try_from_secs_f64(ms / 1000.0).ok()
    };
    Offer {
        on_message: value.get("onMessage").as_bool().unwrap_or_default(),
        limits: Limits {
            on_session: limit("onSession"),
            on_message: limit("onMessage"),
            teardown: limit("teardown"),
        },
    }
}

/// Where a plug's words go. They wait in a queue: JavaScript does not wait for whoever reads them.
#[derive(Clone)]
pub(crate) struct Logger {
    queue: mpsc::Sender<Said>,
    dropped: Arc<AtomicU64>,
    /// The queue's end, until there is somebody to tell.
    lines: Arc<std::sync::Mutex<Option<mpsc::Receiver<Said>>>>,
}

pub(crate) enum Said {
    Words(String),
    /// Answered when all before it has been said.
    Flush(oneshot::Sender<()>),
}

impl Logger {
    fn new() -> (Self, mpsc::Receiver<Said>) {
        let (queue, lines) = mpsc::channel(LOG_QUEUE);
        let logger = Self {
            queue,
            dropped: Arc::default(),
            lines: Arc::default(),
        };
        (logger, lines)
    }

    fn keep(&self, lines: mpsc::Receiver<Said>) {
        *self.lines() = Some(lines);
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Option<mpsc::Receiver<Said>>> {
        self.lines
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn say(&self, words: &str) {
        if self.queue.try_send(Said::Words(words.to_owned())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From now on somebody listens, and hears what was said before too.
    pub(crate) fn listen(&self, log: Log, outside: &Outside) {
        let Some(mut lines) = self.lines().take() else {
            return;
        };
        let dropped = Arc::clone(&self.dropped);
        outside.aside(async move {
            while let Some(said) = lines.recv().await {
                match said {
                    Said::Words(words) => {
                        for line in words.lines() {
                            log.say(line).await;
                        }
                    }
                    Said::Flush(done) => {
                        let lost = dropped.swap(0, Ordering::Relaxed);
                        if lost > 0 {
                            log.say(&format!(
                                "{lost} messages were lost: nobody read fast enough"
                            ))
                            .await;
                        }
                        // Whoever asked may have stopped waiting.
                        let _ = done.send(());
                    }
                }
            }
        });
    }

    async fn flushed(&self) {
        if self.lines().is_some() {
            return;
        }
        let (done, all_said) = oneshot::channel();
        if self.queue.send(Said::Flush(done)).await.is_ok() {
            // Not for ever: whoever reads may have stopped.
            let _ = tokio::time::timeout(STOP, all_said).await;
        }
    }
}
