//! One invocation's life, as far as its own process goes. Pure: frames and events in, steps out.
//!
//! ```text
//!              Ready ↑ / Start ↓             Waiting ↑, nothing to deliver / leave the slot
//!  Preparing ─────────────────────▶ Running ───────────────────────────────────────────────▶ Waiting
//!                                   │ ▲  └─ Waiting ↑, an answer is there / Answer ↓ ─▶ Running  │
//!                                   │ │                                                          │ an answer is there
//!                                   │ │ a slot / Answer ↓                                        ▼ / ask for a slot
//!                                   │ └───────────────────────────────────────────────────── Resuming
//!                                   └── Done ↑ ─▶ Ended
//! ```
//!
//! Only a process that is *Running* may say anything; in *Waiting* and *Resuming* it is asleep in a read. Each `Waiting` is
//! answered by one `Answer`, so that who runs has a slot and who sleeps has none, whatever the two sides are doing at the
//! same time. Whatever does not fit into this picture is a [`Violation`], which ends the process: the deadline, the
//! caller's cancelling and the process's death are not in the picture, because they end it from wherever it is.

use std::collections::VecDeque;

use bulkhead_wire::{
    methods::{Method, Where, by_number},
    pipe::{Answer, Call, Done, Log, from_invocation::Frame},
};

use crate::{
    context::{CallCounts, LimitReached},
    host_calls::refusal,
};

/// How many calls one invocation has under way; its process refuses more by itself.
pub const CALLS_UNDER_WAY_MAX: usize = 64;
/// How many of them are carried out at once; the others wait.
pub const CALLS_AT_ONCE_MAX: usize = 8;
/// What the arguments of all calls that wait may hold together.
pub const WAITING_ARGUMENTS_BYTES_MAX: usize = 32 << 20;

/// What the process is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    Run,
    Check,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Preparing,
    Running,
    Waiting,
    Resuming,
    Ended,
}

/// What is to be done now, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    SendStart,
    Begin(Call),
    Deliver(Answer),
    Log(Log),
    LeaveSlot,
    AskForSlot,
    Finish(Box<Done>),
}

/// The process sent what it must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("an empty frame")]
    Empty,
    #[error("a frame before its time")]
    OutOfOrder,
    #[error("a frame while it should have been waiting")]
    WhileWaiting,
    #[error("it waits, and nothing is under way")]
    WaitsForNothing,
    #[error("calls that are not counted one by one")]
    CallId,
    #[error("a call of a function that there is not")]
    UnknownMethod,
    #[error("more calls at once than there may be")]
    TooManyCalls,
    #[error("an end that is none to what it was given to do")]
    WrongEnd,
}

/// See the module.
#[derive(Debug)]
pub struct Life {
    errand: Errand,
    state: State,
    is_loaded: bool,
    last_call: u32,
    counts: CallCounts,
    /// Calls that are carried out now.
    carried_out: usize,
    /// Calls that wait for others to be answered.
    queued: VecDeque<Call>,
    /// Answers that wait until the process does.
    ready: VecDeque<Ready>,
}

#[derive(Debug)]
enum Ready {
    Answer(Answer),
    Refused { id: u32, why: Refused },
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Limit(#[from] LimitReached),
    #[error("the calls that wait hold more than 32 MiB of arguments; await some first")]
    TooMuchWaits,
}

impl Ready {
    fn into_answer(self) -> Answer {
        match self {
            Self::Answer(answer) => answer,
            Self::Refused { id, why } => refusal(id, "limit", why.to_string()),
        }
    }
}

impl Life {
    pub fn new(errand: Errand) -> Self {
        Self {
            errand,
            state: State::Preparing,
            is_loaded: false,
            last_call: 0,
            counts: CallCounts::default(),
            carried_out: 0,
            queued: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the module stands, so that what takes time now is the handler.
    pub fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    /// All calls so far, refused ones too.
    pub fn calls(&self) -> u32 {
        self.counts.total()
    }

    /// A frame came up.
    pub fn frame(&mut self, frame: Option<Frame>) -> Result<Vec<Step>, Violation> {
        let frame = frame.ok_or(Violation::Empty)?;
        match (self.state, frame) {
            (State::Preparing, Frame::Ready(_)) => {
                self.state = State::Running;
                Ok(vec![Step::SendStart])
            }
            (State::Running, Frame::Loaded(_)) if !self.is_loaded && self.errand == Errand::Run => {
                self.is_loaded = true;
                Ok(Vec::new())
            }
            (State::Running, Frame::Call(call)) => self.call(call),
            (State::Running, Frame::Log(log)) => Ok(vec![Step::Log(log)]),
            (State::Running, Frame::Waiting(_)) => self.waits(),
            (State::Running, Frame::Done(done)) => self.done(done),
            (State::Waiting | State::Resuming, _) => Err(Violation::WhileWaiting),
            _ => Err(Violation::OutOfOrder),
        }
    }

    /// A call was carried out.
    pub fn answered(&mut self, answer: Answer) -> Vec<Step> {
        self.carried_out = self.carried_out.saturating_sub(1);
        self.ready.push_back(Ready::Answer(answer));
        let mut steps = Vec::new();
        if self.state != State::Ended
            && let Some(next) = self.queued.pop_front()
        {
            self.carried_out += 1;
            steps.push(Step::Begin(next));
        }
        if self.state == State::Waiting {
            self.state = State::Resuming;
            steps.push(Step::AskForSlot);
        }
        steps
    }

    /// The slot that was asked for is there.
    pub fn slot(&mut self) -> Vec<Step> {
        if self.state != State::Resuming {
            return Vec::new();
        }
        self.state = State::Running;
        self.deliver().into_iter().collect()
    }

    fn call(&mut self, call: Call) -> Result<Vec<Step>, Violation> {
        if call.id != self.last_call.wrapping_add(1) {
            return Err(Violation::CallId);
        }
        self.last_call = call.id;
        let method = method_of(&call)?;
        if self.under_way() >= CALLS_UNDER_WAY_MAX {
            return Err(Violation::TooManyCalls);
        }
        if let Err(limit) = self.counts.count(method) {
            return Ok(self.refuse(call.id, limit.into()));
        }
        if self.carried_out < CALLS_AT_ONCE_MAX {
            self.carried_out += 1;
            return Ok(vec![Step::Begin(call)]);
        }
        let waiting: usize = self
            .queued
            .iter()
            .map(|call| call.arguments_json.len())
            .sum();
        if waiting + call.arguments_json.len() > WAITING_ARGUMENTS_BYTES_MAX {
            return Ok(self.refuse(call.id, Refused::TooMuchWaits));
        }
        self.queued.push_back(call);
        Ok(Vec::new())
    }

    fn refuse(&mut self, id: u32, why: Refused) -> Vec<Step> {
        self.ready.push_back(Ready::Refused { id, why });
        Vec::new()
    }

    fn waits(&mut self) -> Result<Vec<Step>, Violation> {
        if self.under_way() == 0 {
            return Err(Violation::WaitsForNothing);
        }
        if let Some(deliver) = self.deliver() {
            return Ok(vec![deliver]);
        }
        self.state = State::Waiting;
        Ok(vec![Step::LeaveSlot])
    }

    fn done(&mut self, done: Done) -> Result<Vec<Step>, Violation> {
        use bulkhead_wire::pipe::done::Outcome::{Exports, Failure, ResultJson};
        match (self.errand, &done.outcome) {
            (_, Some(Failure(_)))
            | (Errand::Run, Some(ResultJson(_)))
            | (Errand::Check, Some(Exports(_))) => {}
            _ => return Err(Violation::WrongEnd),
        }
        self.state = State::Ended;
        self.queued.clear();
        Ok(vec![Step::Finish(Box::new(done))])
    }

    fn deliver(&mut self) -> Option<Step> {
        let ready = self.ready.pop_front()?;
        Some(Step::Deliver(ready.into_answer()))
    }

    fn under_way(&self) -> usize {
        self.carried_out + self.queued.len() + self.ready.len()
    }
}

fn method_of(call: &Call) -> Result<&'static Method, Violation> {
    by_number(call.method)
        .filter(|method| method.carried_out != Where::Inside)
        .ok_or(Violation::UnknownMethod)
}

#[cfg(test)]
mod tests;
