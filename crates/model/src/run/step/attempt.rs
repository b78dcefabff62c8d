//! What is heard of the attempt in flight. All of it shows a fence, and a wrong one is refused first.

use super::{Change, Walk};
use crate::{
    ids::{CommitId, Fence},
    run::{
        event::{Failure, PhaseEnd},
        plan::Repository,
        refused::Refused,
        spent::{Cap, CapScope, Spent},
        state::{Attempt, End, PhaseState, Push, Status},
    },
};

impl Walk {
    pub(super) fn claimed(&mut self, fence: Fence) -> Result<Change, Refused> {
        let (index, _) = self.in_flight(fence)?;
        match &self.run.phases[index].state {
            PhaseState::Dispatched(attempt) => {
                self.run.phases[index].state = PhaseState::Running(attempt.clone());
                Ok(Change::Made)
            }
            _ => Err(Refused::AlreadyClaimed { fence }),
        }
    }

    pub(super) fn started(&mut self, fence: Fence) -> Result<Change, Refused> {
        let now_ms = self.now_ms;
        let (_, attempt) = self.running(fence)?;
        if attempt.started_ms.is_some() {
            return Ok(Change::Repeated);
        }
        attempt.started_ms = Some(now_ms);
        Ok(Change::Made)
    }

    pub(super) fn pushed(
        &mut self,
        fence: Fence,
        old: Option<&CommitId>,
        new: &CommitId,
    ) -> Result<Change, Refused> {
        if self.run.plan.repository == Repository::None {
            return Err(Refused::NoRepository);
        }
        let stopping = matches!(self.run.status, Status::Stopping { .. });
        let (_, attempt) = self.running(fence)?;
        if stopping {
            return Err(Refused::Stopping);
        }
        let push = Push {
            old: old.cloned(),
            new: new.clone(),
        };
        if attempt.push.as_ref() == Some(&push) {
            return Ok(Change::Repeated);
        }
        // A recorded push may have failed upstream, so the next may begin where that one began.
        let expected = match &attempt.push {
            None => vec![attempt.start.clone()],
            Some(last) => vec![Some(last.new.clone()), last.old.clone()],
        };
        if !expected.contains(&push.old) {
            let expected = expected.into_iter().next().flatten();
            return Err(Refused::PushFromElsewhere { expected });
        }
        attempt.push = Some(push);
        Ok(Change::Made)
    }

    pub(super) fn phase_ended(
        &mut self,
        fence: Fence,
        result: &PhaseEnd,
        head: Option<&CommitId>,
        spent: Spent,
    ) -> Result<Change, Refused> {
        let (index, attempt) = self.running(fence)?;
        let attempt = attempt.clone();
        self.spend(index, spent);
        self.run.head = head.cloned().or(self.run.head.take());
        let verdict = match result {
            PhaseEnd::Succeeded => self.delivered(&attempt, head),
            PhaseEnd::Failed(failure) => Err(attempt
                .over
                .map_or(failure.clone(), |cap| Failure::Cap { cap })),
        };
        self.settle(index, &attempt, verdict);
        Ok(Change::Made)
    }

    /// Whoever held the attempt is silent, which is not the same as gone.
    pub(super) fn lease_lost(
        &mut self,
        fence: Fence,
        head: Option<&CommitId>,
        spent: Spent,
    ) -> Result<Change, Refused> {
        let (index, _) = self.running(fence)?;
        self.stop(index, fence);
        let lost = PhaseEnd::Failed(Failure::Lost);
        self.phase_ended(fence, &lost, head, spent)
    }

    pub(super) fn push_confirmed(
        &mut self,
        fence: Fence,
        head: &CommitId,
        spent: Spent,
    ) -> Result<Change, Refused> {
        let (index, attempt) = self.running(fence)?;
        if attempt.push.as_ref().is_none_or(|push| push.new != *head) {
            let head = head.clone();
            return Err(Refused::NoSuchPush { fence, head });
        }
        let attempt = attempt.clone();
        // Nobody heard how it ended, so it may still be there.
        self.stop(index, fence);
        self.spend(index, spent);
        self.run.head = Some(head.clone());
        self.settle(index, &attempt, Ok(()));
        Ok(Change::Made)
    }

    pub(super) fn cap_reached(&mut self, fence: Fence, cap: Cap) -> Result<Change, Refused> {
        let (index, attempt) = self.running(fence)?;
        if attempt.over.is_some() {
            return Ok(Change::Repeated);
        }
        attempt.over = Some(cap);
        self.stop(index, fence);
        if cap.scope == CapScope::Run && !matches!(self.run.status, Status::Stopping { .. }) {
            let then = End::Failed { cap };
            self.run.status = Status::Stopping { then };
        }
        Ok(Change::Made)
    }

    pub(super) fn restarted(
        &mut self,
        fence: Fence,
        head: Option<&CommitId>,
    ) -> Result<Change, Refused> {
        let (index, attempt) = self.in_flight(fence)?;
        let over = attempt.over;
        self.run.head = head.cloned().or(self.run.head.take());
        if let Status::Stopping { then } = self.run.status.clone() {
            self.end(then);
            return Ok(Change::Made);
        }
        if matches!(self.run.phases[index].state, PhaseState::Running(_)) {
            self.stop(index, fence);
        }
        match over {
            Some(cap) => self.failed(index, Failure::Cap { cap }),
            None => self.dispatch(index),
        }
        Ok(Change::Made)
    }

    /// Whether the branch is where this attempt's success says it must be.
    pub(super) fn delivered(
        &self,
        attempt: &Attempt,
        head: Option<&CommitId>,
    ) -> Result<(), Failure> {
        if self.run.plan.repository == Repository::None {
            return Ok(());
        }
        let recorded = attempt.push.as_ref().map(|push| push.new.clone());
        let expected = recorded.as_ref().or(attempt.start.as_ref());
        if head.is_some() && head == expected {
            return Ok(());
        }
        let found = head.cloned();
        Err(Failure::NotDelivered { recorded, found })
    }

    pub(super) fn settle(&mut self, index: usize, attempt: &Attempt, verdict: Result<(), Failure>) {
        if let Status::Stopping { then } = self.run.status.clone() {
            if verdict.is_ok() {
                self.run.phases[index].state = PhaseState::Done {
                    commit: self.run.head.clone(),
                    attempt: attempt.attempt,
                };
            }
            return self.end(then);
        }
        match verdict {
            Ok(()) => self.succeeded(index, attempt),
            Err(failure) => self.failed(index, failure),
        }
    }

    pub(super) fn in_flight(&self, fence: Fence) -> Result<(usize, &Attempt), Refused> {
        let in_flight = self.run.in_flight();
        let current = in_flight.map(|(_, attempt)| attempt.fence);
        let stale = Refused::StaleFence {
            shown: fence,
            current,
        };
        in_flight
            .filter(|(_, attempt)| attempt.fence == fence)
            .ok_or(stale)
    }

    pub(super) fn running(&mut self, fence: Fence) -> Result<(usize, &mut Attempt), Refused> {
        let (index, _) = self.in_flight(fence)?;
        match &mut self.run.phases[index].state {
            PhaseState::Running(attempt) => Ok((index, attempt)),
            _ => Err(Refused::NotClaimed { fence }),
        }
    }
}
