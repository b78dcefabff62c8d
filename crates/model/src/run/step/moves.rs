//! The moves that phases make. Whether a move is allowed was checked before; here it is made, with
//! what must be done because of it.

use super::Walk;
use crate::{
    gate::OnSuccess,
    ids::Fence,
    run::{
        effect::Action,
        event::Failure,
        spent::Spent,
        state::{Attempt, End, GateWhy, PhaseState, Status},
    },
};

impl Walk {
    pub(super) fn succeeded(&mut self, index: usize, attempt: &Attempt) {
        self.run.phases[index].failures = 0;
        match self.run.plan.phases()[index].gate.on_success {
            OnSuccess::GoOn => {
                self.done(index);
                self.go_on(index);
            }
            // Where the run's cap is used up and phases remain, an approval could lead nowhere.
            OnSuccess::Review => match self.run.exhausted() {
                Some(cap) if index + 1 < self.run.phases.len() => {
                    self.done(index);
                    self.end(End::Failed { cap });
                }
                _ => self.open_gate(index, attempt.attempt, GateWhy::Review),
            },
        }
    }

    pub(super) fn failed(&mut self, index: usize, failure: Failure) {
        let phase = &mut self.run.phases[index];
        phase.failures += 1;
        let (failures, attempt) = (phase.failures, phase.attempts);
        let hopeless = matches!(failure, Failure::Cap { .. } | Failure::Refused { .. });
        if !hopeless && failures <= self.run.plan.phases()[index].retries {
            return self.dispatch(index);
        }
        match self.run.exhausted() {
            Some(cap) => self.end(End::Failed { cap }),
            None => self.open_gate(index, attempt, GateWhy::Parked { failure }),
        }
    }

    pub(super) fn done(&mut self, index: usize) {
        let phase = &mut self.run.phases[index];
        phase.comment = None;
        phase.state = PhaseState::Done {
            commit: self.run.head.clone(),
            attempt: phase.attempts,
        };
    }

    /// A person lets a phase run again: its retries count anew.
    pub(super) fn again(&mut self, index: usize) {
        self.run.phases[index].failures = 0;
        self.dispatch(index);
    }

    pub(super) fn go_on(&mut self, index: usize) {
        if index + 1 < self.run.phases.len() {
            self.dispatch(index + 1);
        } else if !matches!(self.run.status, Status::Paused { .. }) {
            self.end(End::Completed);
        }
    }

    pub(super) fn dispatch(&mut self, index: usize) {
        if let Some(cap) = self.run.exhausted() {
            return self.end(End::Failed { cap });
        }
        if matches!(self.run.status, Status::Paused { .. }) {
            self.run.phases[index].state = PhaseState::Held;
            return;
        }
        self.run.last_fence.0 += 1;
        let phase = &mut self.run.phases[index];
        phase.attempts += 1;
        let attempt = Attempt {
            attempt: phase.attempts,
            fence: self.run.last_fence,
            start: self.run.head.clone(),
            dispatched_ms: self.now_ms,
            started_ms: None,
            push: None,
            over: None,
        };
        self.actions.push(Action::Dispatch {
            phase: self.run.plan.phases()[index].name.clone(),
            phase_index: u32::try_from(index).unwrap_or(u32::MAX),
            attempt: attempt.attempt,
            fence: attempt.fence,
            start: attempt.start.clone(),
            comment: phase.comment.clone(),
        });
        phase.state = PhaseState::Dispatched(attempt);
    }

    pub(super) fn end(&mut self, end: End) {
        if let Some((index, _)) = self.run.current() {
            self.run.phases[index].state = PhaseState::Dropped;
        }
        self.actions.push(Action::FinishRun { end: end.clone() });
        self.run.status = Status::Ended { end };
    }

    pub(super) fn stop(&mut self, index: usize, fence: Fence) {
        let phase = self.run.plan.phases()[index].name.clone();
        self.actions.push(Action::StopPhase { phase, fence });
    }

    pub(super) fn spend(&mut self, index: usize, spent: Spent) {
        self.run.spent = self.run.spent.plus(spent);
        let phase = &mut self.run.phases[index];
        phase.spent = phase.spent.plus(spent);
    }
}
