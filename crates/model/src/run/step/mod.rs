//! The transition itself. The diagram and its words are in the module above; what each event does is in
//! the modules below.

mod attempt;
mod control;
mod gate;
mod moves;

use crate::run::{
    effect::{Action, Effect, EffectId, Transition},
    event::RunEvent,
    refused::Refused,
    state::{End, Run, Status},
};

/// Works one event into a run. Time is the server's, in milliseconds.
///
/// # Errors
/// Where the event does not apply to the run as it is; nothing has changed then.
pub fn step(run: &Run, event: &RunEvent, now_ms: i64) -> Result<Transition, Refused> {
    let mut walk = Walk::begin(run, now_ms);
    match walk.apply(event)? {
        Change::Made => Ok(walk.finish()),
        Change::Repeated => Ok(Transition {
            run: run.clone(),
            effects: Vec::new(),
        }),
    }
}

/// Whether an event changed the run, or was the repetition of one that had.
enum Change {
    Made,
    Repeated,
}

/// A transition while it is being made.
struct Walk {
    run: Run,
    actions: Vec<Action>,
    now_ms: i64,
}

impl Walk {
    fn begin(run: &Run, now_ms: i64) -> Self {
        let mut run = run.clone();
        run.version += 1;
        Self {
            run,
            actions: Vec::new(),
            now_ms,
        }
    }

    fn finish(self) -> Transition {
        let (run, version) = (self.run.id, self.run.version);
        let effects = (0..).zip(self.actions).map(|(index, action)| Effect {
            id: EffectId {
                run,
                version,
                index,
            },
            action,
        });
        Transition {
            effects: effects.collect(),
            run: self.run,
        }
    }

    fn apply(&mut self, event: &RunEvent) -> Result<Change, Refused> {
        self.check_status(event)?;
        match event {
            RunEvent::Start { base } => self.start(base.as_ref()),
            RunEvent::Claimed { fence } => self.claimed(*fence),
            RunEvent::Started { fence } => self.started(*fence),
            RunEvent::Pushed { fence, old, new } => self.pushed(*fence, old.as_ref(), new),
            RunEvent::PhaseEnded {
                fence,
                result,
                head,
                spent,
            } => self.phase_ended(*fence, result, head.as_ref(), *spent),
            RunEvent::PushConfirmed { fence, head, spent } => {
                self.push_confirmed(*fence, head, *spent)
            }
            RunEvent::LeaseLost { fence, head, spent } => {
                self.lease_lost(*fence, head.as_ref(), *spent)
            }
            RunEvent::CapReached { fence, cap } => self.cap_reached(*fence, *cap),
            RunEvent::Decision(decision) => self.decide(decision),
            RunEvent::GateExpired { gate } => self.gate_expired(*gate),
            RunEvent::Pause { mode } => self.pause(*mode),
            RunEvent::Resume => self.resume(),
            RunEvent::Cancel { by } => self.cancel(by),
            RunEvent::Restarted { fence, head } => self.restarted(*fence, head.as_ref()),
        }
    }

    /// What holds for every event: an end is final, and a run begins once. Repeated decisions and
    /// cancels pass, because they answer to what was said before, not to what the run is now.
    fn check_status(&self, event: &RunEvent) -> Result<(), Refused> {
        let start = matches!(event, RunEvent::Start { .. });
        match &self.run.status {
            Status::Ended { end } => match event {
                RunEvent::Decision(decision) if self.answer_to(decision.gate).is_some() => Ok(()),
                RunEvent::Cancel { .. } if matches!(end, End::Cancelled { .. }) => Ok(()),
                _ => Err(Refused::Ended { end: end.clone() }),
            },
            Status::Created if start || matches!(event, RunEvent::Cancel { .. }) => Ok(()),
            Status::Created => Err(Refused::NotStarted),
            _ if start => Err(Refused::AlreadyStarted),
            _ => Ok(()),
        }
    }
}
