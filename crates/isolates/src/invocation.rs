//! Driving one process through one invocation: bytes and clocks around the pure [`life`].
//!
//! One task owns the process, so nothing here is shared. In each turn the deadline comes first, then the caller's going
//! away, then answers and slots, and last what the process says: however much a process sends, it cannot keep its own end
//! from coming. Calls are carried out by tasks of their own, which end with this one.

pub mod life;
mod pipe_end;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bulkhead_wire::{
    isolates,
    pipe::{self, to_invocation::Frame as Down},
};
use futures::FutureExt as _;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout, timeout_at},
};

use crate::{
    caller::{Caller, Gone},
    context::InvocationContext,
    fault::{Phase, millis},
    host_calls::{HostCalls, refusal},
    logs::Logs,
    process::{Death, Process},
    slots::{Asked, Slot, Slots},
};
use life::{Errand, Life, Step};
use pipe_end::{Heard, PipeEnd};

/// How long a process may take to say that it is ready.
const READY_MAX: Duration = Duration::from_secs(10);
/// How long the news of a death is waited for, once the pipe is closed.
const DEATH_NEWS_MAX: Duration = Duration::from_secs(2);

/// What a process is to do, and who helps it.
pub(crate) struct Job {
    pub(crate) start: pipe::Start,
    pub(crate) host_calls: Arc<dyn HostCalls>,
}

/// How the driving ended.
#[derive(Debug)]
pub(crate) enum End {
    Done(Box<pipe::Done>),
    TimedOut,
    Died(Option<Death>),
    /// It sent what it must not.
    Broke(String),
    Gone(Gone),
}

/// All that is known after the end. The process is killed or about to be.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) end: End,
    pub(crate) logs: Logs,
    pub(crate) calls: u32,
    pub(crate) phase: Phase,
    /// From when the process was given its work until it was done or killed.
    pub(crate) took: Duration,
}

/// A process that stands ready, and what was read of it so far.
pub(crate) struct ReadyProcess {
    process: Process,
    pipe: PipeEnd,
    life: Life,
}

/// Why a process was not given its work.
#[derive(Debug)]
pub(crate) enum NotReady {
    /// It is dead, mute or confused; another one may not be.
    Process,
    Gone(Gone),
}

impl ReadyProcess {
    /// Waits until the process says that it is ready.
    pub(crate) async fn new(
        process: Process,
        errand: Errand,
        caller: &mut Caller,
    ) -> Result<Self, NotReady> {
        let mut ready = Self {
            process,
            pipe: PipeEnd::default(),
            life: Life::new(errand),
        };
        let deadline = Instant::now() + READY_MAX;
        loop {
            let heard = tokio::select! {
                gone = caller.gone() => return Err(NotReady::Gone(gone)),
                heard = timeout_at(deadline, ready.pipe.turn(&ready.process.pipe)) => heard,
            };
            match heard {
                Ok(Heard::Nothing) => {}
                Ok(Heard::Frame(frame)) => match ready.life.frame(frame) {
                    Ok(steps) if steps == [Step::SendStart] => return Ok(ready),
                    _ => return Err(NotReady::Process),
                },
                Ok(Heard::Closed | Heard::Broken(_)) | Err(_) => return Err(NotReady::Process),
            }
        }
    }

    pub(crate) fn memory_peak_bytes(&self) -> Option<u64> {
        self.process.memory_peak_bytes()
    }

    /// Gives the process its work, and drives it to its end. The context's deadline is the process's.
    pub(crate) async fn drive(
        &mut self,
        job: Job,
        context: Arc<InvocationContext>,
        slot: Slot,
        slots: &Slots,
        caller: &mut Caller,
    ) -> Driven {
        let mut drive = Drive {
            process: &mut self.process,
            pipe: &mut self.pipe,
            life: &mut self.life,
            slots,
            slot: Some(slot),
            asked: None,
            calls: JoinSet::new(),
            logs: Logs::default(),
            context,
            host_calls: job.host_calls,
            started: Instant::now(),
        };
        let end = match drive.pipe.send(Down::Start(job.start)) {
            Ok(()) => drive.run(caller).await,
            Err(error) => End::Broke(error.to_string()),
        };
        let took = drive.started.elapsed();
        if !matches!(end, End::Done(_)) {
            drive.process.kill();
        }
        let (logs, calls) = (drive.logs, drive.life.calls());
        let phase = phase(drive.life);
        Driven {
            end,
            logs,
            calls,
            phase,
            took,
        }
    }
}

fn phase(life: &Life) -> Phase {
    if life.is_loaded() {
        Phase::Handling
    } else {
        Phase::Loading
    }
}

struct Drive<'a> {
    process: &'a mut Process,
    pipe: &'a mut PipeEnd,
    life: &'a mut Life,
    slots: &'a Slots,
    slot: Option<Slot>,
    asked: Option<Asked>,
    calls: JoinSet<pipe::Answer>,
    logs: Logs,
    context: Arc<InvocationContext>,
    host_calls: Arc<dyn HostCalls>,
    started: Instant,
}

enum Turn {
    Deadline,
    Gone(Gone),
    Slot(Option<Slot>),
    Answered(pipe::Answer),
    Heard(Heard),
    Dead(Option<Death>),
}

impl Drive<'_> {
    async fn run(&mut self, caller: &mut Caller) -> End {
        loop {
            let steps = match self.turn(caller).await {
                Turn::Deadline => {
                    self.process.kill();
                    return End::TimedOut;
                }
                Turn::Gone(gone) => return End::Gone(gone),
                Turn::Slot(slot) => {
                    self.slot = slot;
                    Ok(self.life.slot())
                }
                Turn::Answered(answer) => Ok(self.life.answered(answer)),
                Turn::Heard(Heard::Frame(frame)) => self.life.frame(frame),
                Turn::Heard(Heard::Nothing) => continue,
                Turn::Heard(Heard::Broken(error)) => return End::Broke(error.to_string()),
                Turn::Heard(Heard::Closed) => return self.closed().await,
                Turn::Dead(death) => return self.dead(death, caller),
            };
            let ended = match steps {
                Ok(steps) => self.perform(steps, caller),
                Err(violation) => Some(End::Broke(violation.to_string())),
            };
            if let Some(end) = ended {
                return end;
            }
        }
    }

    async fn turn(&mut self, caller: &mut Caller) -> Turn {
        let asked = self.asked.as_mut();
        let has_asked = asked.is_some();
        let slot = async {
            match asked {
                Some(asked) => asked.await.ok(),
                None => None,
            }
        };
        let has_calls = !self.calls.is_empty();
        let turn = tokio::select! {
            biased;
            () = sleep_until(self.context.deadline()) => Turn::Deadline,
            gone = caller.gone() => Turn::Gone(gone),
            slot = slot, if has_asked => Turn::Slot(slot),
            Some(Ok(answer)) = self.calls.join_next(), if has_calls => Turn::Answered(answer),
            heard = self.pipe.turn(&self.process.pipe) => Turn::Heard(heard),
            death = &mut self.process.death => Turn::Dead(death.ok()),
        };
        if matches!(turn, Turn::Slot(_)) {
            self.asked = None;
        }
        turn
    }

    /// Performs steps; an end, if they contain it.
    fn perform(&mut self, steps: Vec<Step>, caller: &Caller) -> Option<End> {
        for step in steps {
            match step {
                Step::SendStart => return Some(End::Broke("that it is ready twice".to_owned())),
                Step::Begin(call) => self.begin(call),
                Step::Deliver(answer) => self.deliver(answer),
                Step::Log(log) => self.log(&log, caller),
                Step::LeaveSlot => self.slot = None,
                Step::AskForSlot => self.asked = Some(self.slots.resume()),
                Step::Finish(done) => return Some(End::Done(done)),
            }
        }
        None
    }

    fn begin(&mut self, call: pipe::Call) {
        let (host_calls, context) = (Arc::clone(&self.host_calls), Arc::clone(&self.context));
        self.calls.spawn(async move {
            let id = call.id;
            let carried_out = AssertUnwindSafe(host_calls.call(&context, call));
            match carried_out.catch_unwind().await {
                Ok(answer) => pipe::Answer { id, ..answer },
                Err(_) => {
                    tracing::error!("carrying out a plugin's call broke down");
                    refusal(id, "failed", "carrying out this call broke down")
                }
            }
        });
    }

    fn deliver(&mut self, answer: pipe::Answer) {
        let id = answer.id;
        if self.pipe.send(Down::Answer(answer)).is_err() {
            let refused = refusal(
                id,
                "limit",
                "the answer is larger than a plugin can be given",
            );
            // It is short, so it can be sent.
            let _ = self.pipe.send(Down::Answer(refused));
        }
    }

    fn log(&mut self, log: &pipe::Log, caller: &Caller) {
        let at_ms = millis(self.started.elapsed());
        if let Some(line) = self.logs.line(log, self.context.secrets(), at_ms) {
            caller.send(isolates::from_service::Frame::Log(line));
        }
    }

    /// The pipe is closed and nothing is left in it. A process that lives on without it is of no use.
    async fn closed(&mut self) -> End {
        self.process.kill();
        let death = timeout(DEATH_NEWS_MAX, &mut self.process.death).await;
        End::Died(death.ok().and_then(Result::ok))
    }

    /// The process is dead: what it had said before counts.
    fn dead(&mut self, death: Option<Death>, caller: &Caller) -> End {
        while let Some(heard) = self.pipe.rest(&self.process.pipe) {
            let Heard::Frame(frame) = heard else { break };
            let ended = match self.life.frame(frame) {
                Ok(steps) => self.perform(steps, caller),
                Err(violation) => Some(End::Broke(violation.to_string())),
            };
            if let Some(end) = ended {
                return end;
            }
        }
        End::Died(death)
    }
}
