//! What runs on a plug's thread: the isolate, and what drives it.

use std::{rc::Rc, time::Duration};

use bulkhead_engine::{
    Argument, EngineError, Handle, Isolate, IsolateOptions, Reference, StringsAsCode, Trust, Value,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    actor::{Call, Command, Failure, Limits, Offer},
    loader,
    native::{self, Native},
    prelude,
};

const HEAP_LIMIT_BYTES: usize = 256 << 20;
const BUFFER_LIMIT_BYTES: usize = 512 << 20;

/// What is on the thread.
pub(crate) struct Inside {
    isolate: Isolate,
    native: Rc<Native>,
    commands: mpsc::Receiver<Command>,
    aborts: mpsc::UnboundedReceiver<String>,
    /// The prelude's side: `adopt`, `onSession` …
    glue: Reference,
}

impl Inside {
    pub(crate) fn begin(
        native: Rc<Native>,
        commands: mpsc::Receiver<Command>,
        aborts: mpsc::UnboundedReceiver<String>,
    ) -> Result<(Self, Handle), EngineError> {
        let mut isolate = Isolate::new(&IsolateOptions {
            snapshot: Some(prelude::snapshot()?),
            heap_limit_bytes: HEAP_LIMIT_BYTES,
            buffer_limit_bytes: BUFFER_LIMIT_BYTES,
            strings_as_code: StringsAsCode::Allowed,
            trust: Trust::User,
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

    pub(crate) async fn live(
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
