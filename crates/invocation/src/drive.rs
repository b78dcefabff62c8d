//! The conversation in the middle of an invocation: calls go out when code makes them, answers wake what waits.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bulkhead_engine::{
    Answer as Reply, EngineError, Isolate, Json, JsonLimits, Reference, Thrown, Value,
};
use bulkhead_wire::pipe::{
    Answer, Call, TO_INVOCATION_BYTES_MAX, Waiting, answer::Outcome, from_invocation::Frame,
};
use futures::channel::oneshot;

use crate::{PipeError, crypto::Crypto, log::Logs, pipe::Pipe, random::Random};

/// How many calls may be under way at once (M14).
pub(crate) const CALLS_UNDER_WAY_MAX: usize = 64;
/// The arguments of a call, as JSON.
pub(crate) const ARGUMENTS_BYTES_MAX: usize = 15 << 20;

/// How it is held: there is one thread.
pub(crate) type Sharing = Rc<Shared>;

type Settled = Result<Value, Thrown>;

/// What the functions of `host` and the loop around the isolate share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pipe: RefCell<Option<Pipe>>,
    /// Why the pipe cannot be used any more, until somebody takes it.
    broken: RefCell<Option<PipeError>>,
    calls: RefCell<HashMap<u32, oneshot::Sender<Settled>>>,
    last_id: Cell<u32>,
    pub(crate) logs: Logs,
    pub(crate) random: Random,
    pub(crate) crypto: Crypto,
    /// A JSON object.
    pub(crate) settings: RefCell<String>,
}

/// What became of something that was driven.
pub(crate) enum Driven {
    Settled(Reference),
    Failed(EngineError),
    NeverSettles,
}

impl Shared {
    pub(crate) fn begin(&self, pipe: Pipe) {
        self.random.forget();
        self.crypto.reset();
        *self.pipe.borrow_mut() = Some(pipe);
    }

    /// Sends at once, also in the middle of JavaScript: what was said before a loop without end is said.
    pub(crate) fn send(&self, frame: Frame) {
        if let Err(error) = self.with_pipe(|pipe| pipe.send(frame)) {
            self.broken.borrow_mut().get_or_insert(error);
        }
    }

    pub(crate) fn with_pipe<R>(
        &self,
        run: impl FnOnce(&mut Pipe) -> Result<R, PipeError>,
    ) -> Result<R, PipeError> {
        if let Some(error) = self.broken.borrow_mut().take() {
            return Err(error);
        }
        match &mut *self.pipe.borrow_mut() {
            Some(pipe) => run(pipe),
            None => Err(PipeError::Closed),
        }
    }

    /// Asks the broker, with arguments as a JSON list.
    pub(crate) fn call(&self, method: u32, path: &str, arguments_json: String) -> Reply {
        let mut calls = self.calls.borrow_mut();
        if calls.len() >= CALLS_UNDER_WAY_MAX {
            let message = format!(
                "host.{path}: {CALLS_UNDER_WAY_MAX} calls are under way, which is the most at once; await some first"
            );
            return refused("limit", message);
        }
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let (sender, receiver) = oneshot::channel();
        calls.insert(id, sender);
        drop(calls);
        self.send(Frame::Call(Call {
            id,
            method,
            arguments_json,
        }));
        Reply::Later(Box::pin(async move {
            receiver
                .await
                .unwrap_or_else(|_| Err(coded("failed", "the call was dropped".into())))
        }))
    }

    /// Runs the isolate until the promise is settled.
    pub(crate) fn drive(
        &self,
        isolate: &mut Isolate,
        promise: &Reference,
    ) -> Result<Driven, PipeError> {
        loop {
            let mut context = Context::from_waker(Waker::noop());
            match pin!(isolate.settle(promise)).poll(&mut context) {
                Poll::Ready(Ok(value)) => return Ok(Driven::Settled(value)),
                Poll::Ready(Err(error)) => return Ok(Driven::Failed(error)),
                Poll::Pending => {}
            }
            if self.calls.borrow().is_empty() {
                return Ok(Driven::NeverSettles);
            }
            let answer = self.with_pipe(next_answer)?;
            self.deliver(answer);
        }
    }

    /// An answer to nothing is passed over: the broker counts, not we.
    fn deliver(&self, answer: Answer) {
        let Some(waiting) = self.calls.borrow_mut().remove(&answer.id) else {
            return;
        };
        let settled = match answer.outcome {
            Some(Outcome::Value(value)) => Ok(Value::Json(Json {
                text: value.json,
                body: value.body,
                limits: JsonLimits::of_bytes(TO_INVOCATION_BYTES_MAX),
            })),
            Some(Outcome::Error(error)) => Err(coded(&error.code, error.message)),
            None => Err(coded("failed", "the call came to nothing".into())),
        };
        let _ = waiting.send(settled);
    }
}

fn next_answer(pipe: &mut Pipe) -> Result<Answer, PipeError> {
    pipe.send(Frame::Waiting(Waiting {}))?;
    pipe.answer()
}

/// A promise that is rejected at once.
pub(crate) fn refused(code: &str, message: String) -> Reply {
    let error = coded(code, message);
    Reply::Later(Box::pin(async move { Err(error) }))
}

/// An error with the property `code`.
pub(crate) fn coded(code: &str, message: String) -> Thrown {
    Thrown::new(message).with("code", code.into())
}
