//! What people do to a run as a whole: start, pause, resume, cancel.

use super::{Change, Walk};
use crate::{
    ids::CommitId,
    run::{
        event::PauseMode,
        plan::Repository,
        refused::Refused,
        state::{End, PhaseState, Status},
    },
};

impl Walk {
    pub(super) fn start(&mut self, base: Option<&CommitId>) -> Result<Change, Refused> {
        match (self.run.plan.repository, base) {
            (Repository::Branch, None) => return Err(Refused::NoBase),
            (Repository::None, Some(_)) => return Err(Refused::NoRepository),
            _ => {}
        }
        self.run.status = Status::Running;
        self.run.head = base.cloned();
        self.dispatch(0);
        Ok(Change::Made)
    }

    pub(super) fn pause(&mut self, mode: PauseMode) -> Result<Change, Refused> {
        let mut change = Change::Repeated;
        match self.run.status {
            Status::Stopping { .. } => return Err(Refused::Stopping),
            Status::Paused { .. } => {}
            _ => {
                self.run.status = Status::Paused {
                    since_ms: self.now_ms,
                };
                change = Change::Made;
            }
        }
        let Some((index, attempt)) = self.run.in_flight() else {
            return Ok(change);
        };
        let fence = attempt.fence;
        // An attempt over its cap is being stopped already, and one that has pushed must not be repeated.
        let stoppable = attempt.push.is_none() && attempt.over.is_none();
        let claimed = matches!(self.run.phases[index].state, PhaseState::Running(_));
        if !claimed || (mode == PauseMode::Stop && stoppable) {
            if claimed {
                self.stop(index, fence);
            }
            self.run.phases[index].state = PhaseState::Held;
            change = Change::Made;
        }
        Ok(change)
    }

    pub(super) fn resume(&mut self) -> Result<Change, Refused> {
        let since_ms = match self.run.status {
            Status::Paused { since_ms } => since_ms,
            Status::Stopping { .. } => return Err(Refused::Stopping),
            _ => return Ok(Change::Repeated),
        };
        self.run.status = Status::Running;
        let paused_ms = self.now_ms.saturating_sub(since_ms).max(0);
        match self.run.current().map(|(index, _)| index) {
            None => self.end(End::Completed),
            Some(index) => match &mut self.run.phases[index].state {
                PhaseState::Held => self.dispatch(index),
                PhaseState::AtGate(gate) => {
                    let moved = |expires_ms: i64| expires_ms.saturating_add(paused_ms);
                    gate.expires_ms = gate.expires_ms.map(moved);
                }
                _ => {}
            },
        }
        Ok(Change::Made)
    }

    pub(super) fn cancel(&mut self, by: &str) -> Result<Change, Refused> {
        if matches!(
            self.run.status,
            Status::Stopping { .. } | Status::Ended { .. }
        ) {
            return Ok(Change::Repeated);
        }
        let then = End::Cancelled { by: by.to_owned() };
        match self.run.in_flight().map(|(index, at)| (index, at.fence)) {
            Some((index, fence))
                if matches!(self.run.phases[index].state, PhaseState::Running(_)) =>
            {
                self.stop(index, fence);
                self.run.status = Status::Stopping { then };
            }
            _ => self.end(then),
        }
        Ok(Change::Made)
    }
}
