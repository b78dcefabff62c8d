//! The transition itself. The diagram and its words are in the module above.

use crate::{
    gate::{Answer, Decision, OnExpiry, OnSuccess},
    ids::{CommitId, Fence, GateId},
    run::{
        effect::{Action, Effect, EffectId, Transition},
        event::{Failure, PauseMode, PhaseEnd, RunEvent},
        plan::Repository,
        refused::Refused,
        state::{
            Answered, Attempt, Cap, CapScope, End, Gate, GateWhy, PhaseState, Push, Run, Spent,
            Status,
        },
    },
};

/// How many answers a run remembers, to recognise repeated ones.
const ANSWERS_KEPT: usize = 64;
/// The longest comment with which a phase can be sent back.
pub(crate) const COMMENT_BYTES_MAX: usize = 16 << 10;

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
                let lost = PhaseEnd::Failed(Failure::Lost);
                self.phase_ended(*fence, &lost, head.as_ref(), *spent)
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

    fn start(&mut self, base: Option<&CommitId>) -> Result<Change, Refused> {
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

    fn claimed(&mut self, fence: Fence) -> Result<Change, Refused> {
        let (index, _) = self.in_flight(fence)?;
        match &self.run.phases[index].state {
            PhaseState::Dispatched(attempt) => {
                self.run.phases[index].state = PhaseState::Running(attempt.clone());
                Ok(Change::Made)
            }
            _ => Err(Refused::AlreadyClaimed { fence }),
        }
    }

    fn started(&mut self, fence: Fence) -> Result<Change, Refused> {
        let now_ms = self.now_ms;
        let (_, attempt) = self.running(fence)?;
        if attempt.started_ms.is_some() {
            return Ok(Change::Repeated);
        }
        attempt.started_ms = Some(now_ms);
        Ok(Change::Made)
    }

    fn pushed(
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

    fn phase_ended(
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

    fn push_confirmed(
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
        self.spend(index, spent);
        self.run.head = Some(head.clone());
        self.settle(index, &attempt, Ok(()));
        Ok(Change::Made)
    }

    fn cap_reached(&mut self, fence: Fence, cap: Cap) -> Result<Change, Refused> {
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

    fn decide(&mut self, decision: &Decision) -> Result<Change, Refused> {
        if let Some(answered) = self.answer_to(decision.gate) {
            if answered.answer == decision.answer {
                return Ok(Change::Repeated);
            }
            return Err(Refused::Answered {
                gate: decision.gate,
                answer: answered.answer.clone(),
                by: answered.by.clone(),
            });
        }
        let (index, why) = self.gate(decision.gate)?;
        self.check_decision(index, decision)?;
        self.remember(decision);
        self.run.head = decision.now.commit.clone().or(self.run.head.take());
        match (&decision.answer, why) {
            (Answer::Approve, GateWhy::Review) => {
                self.done(index);
                self.go_on(index);
            }
            (Answer::Approve, GateWhy::Parked { .. }) => self.again(index),
            (Answer::SendBack { comment }, _) => {
                self.run.phases[index].comment = Some(comment.clone());
                self.again(index);
            }
            (Answer::Reject, _) => self.end(End::Rejected {
                by: Some(decision.by.name().to_owned()),
            }),
        }
        Ok(Change::Made)
    }

    fn check_decision(&self, index: usize, decision: &Decision) -> Result<(), Refused> {
        let approvers = &self.run.plan.phases()[index].gate.approvers;
        let by = decision.by.name();
        if !approvers.is_empty() && !approvers.iter().any(|name| name == by) {
            return Err(Refused::NotAnApprover { by: by.to_owned() });
        }
        let changed = decision.shown.changed(&decision.now);
        if !changed.is_empty() {
            return Err(Refused::Void { changed });
        }
        if let Answer::SendBack { comment } = &decision.answer {
            let (size, max) = (comment.len(), COMMENT_BYTES_MAX);
            if comment.trim().is_empty() || size > max {
                return Err(Refused::Comment { size, max });
            }
            if let Some(cap) = self.run.exhausted() {
                return Err(Refused::CapReached { cap });
            }
        }
        Ok(())
    }

    fn gate_expired(&mut self, gate: GateId) -> Result<Change, Refused> {
        let (index, _) = self.gate(gate)?;
        if matches!(self.run.status, Status::Paused { .. }) {
            return Err(Refused::Paused);
        }
        let PhaseState::AtGate(open) = &self.run.phases[index].state else {
            return Err(Refused::NoSuchGate { gate });
        };
        let expires_ms = open.expires_ms.ok_or(Refused::NeverExpires)?;
        if self.now_ms < expires_ms {
            let left_ms = expires_ms.saturating_sub(self.now_ms);
            return Err(Refused::NotExpired { left_ms });
        }
        match self.run.plan.phases()[index].gate.on_expiry {
            OnExpiry::Reject => self.end(End::Rejected { by: None }),
        }
        Ok(Change::Made)
    }

    fn pause(&mut self, mode: PauseMode) -> Result<Change, Refused> {
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

    fn resume(&mut self) -> Result<Change, Refused> {
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

    fn cancel(&mut self, by: &str) -> Result<Change, Refused> {
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

    fn restarted(&mut self, fence: Fence, head: Option<&CommitId>) -> Result<Change, Refused> {
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

    // What follows changes phases; the status checks are above.

    /// Whether the branch is where this attempt's success says it must be.
    fn delivered(&self, attempt: &Attempt, head: Option<&CommitId>) -> Result<(), Failure> {
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

    fn settle(&mut self, index: usize, attempt: &Attempt, verdict: Result<(), Failure>) {
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

    fn succeeded(&mut self, index: usize, attempt: &Attempt) {
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

    fn failed(&mut self, index: usize, failure: Failure) {
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

    fn open_gate(&mut self, index: usize, attempt: u32, why: GateWhy) {
        let plan = &self.run.plan.phases()[index];
        let after = |ms: u64| {
            self.now_ms
                .saturating_add(i64::try_from(ms).unwrap_or(i64::MAX))
        };
        let gate = Gate {
            id: self.run.gate_id(self.run.version),
            attempt,
            why,
            opened_ms: self.now_ms,
            expires_ms: plan.gate.expires_after_ms.map(after),
        };
        self.actions.push(Action::Notify {
            phase: plan.name.clone(),
            gate: gate.id,
        });
        self.run.phases[index].state = PhaseState::AtGate(gate);
    }

    fn done(&mut self, index: usize) {
        let phase = &mut self.run.phases[index];
        phase.comment = None;
        phase.state = PhaseState::Done {
            commit: self.run.head.clone(),
            attempt: phase.attempts,
        };
    }

    /// A person lets a phase run again: its retries count anew.
    fn again(&mut self, index: usize) {
        self.run.phases[index].failures = 0;
        self.dispatch(index);
    }

    fn go_on(&mut self, index: usize) {
        if index + 1 < self.run.phases.len() {
            self.dispatch(index + 1);
        } else if !matches!(self.run.status, Status::Paused { .. }) {
            self.end(End::Completed);
        }
    }

    fn dispatch(&mut self, index: usize) {
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

    fn end(&mut self, end: End) {
        if let Some((index, _)) = self.run.current() {
            self.run.phases[index].state = PhaseState::Dropped;
        }
        self.actions.push(Action::FinishRun { end: end.clone() });
        self.run.status = Status::Ended { end };
    }

    fn stop(&mut self, index: usize, fence: Fence) {
        let phase = self.run.plan.phases()[index].name.clone();
        self.actions.push(Action::StopPhase { phase, fence });
    }

    fn spend(&mut self, index: usize, spent: Spent) {
        self.run.spent = self.run.spent.plus(spent);
        let phase = &mut self.run.phases[index];
        phase.spent = phase.spent.plus(spent);
    }

    fn remember(&mut self, decision: &Decision) {
        if self.run.answered.len() >= ANSWERS_KEPT {
            self.run.answered.remove(0);
        }
        self.run.answered.push(Answered {
            gate: decision.gate,
            answer: decision.answer.clone(),
            by: decision.by.name().to_owned(),
            at_ms: self.now_ms,
        });
    }

    fn answer_to(&self, gate: GateId) -> Option<&Answered> {
        let mut latest = self.run.answered.iter().rev();
        latest.find(|answered| answered.gate == gate)
    }

    fn gate(&self, gate: GateId) -> Result<(usize, GateWhy), Refused> {
        match self.run.open_gate() {
            Some((index, open)) if open.id == gate => Ok((index, open.why.clone())),
            _ => Err(Refused::NoSuchGate { gate }),
        }
    }

    fn in_flight(&self, fence: Fence) -> Result<(usize, &Attempt), Refused> {
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

    fn running(&mut self, fence: Fence) -> Result<(usize, &mut Attempt), Refused> {
        let (index, _) = self.in_flight(fence)?;
        match &mut self.run.phases[index].state {
            PhaseState::Running(attempt) => Ok((index, attempt)),
            _ => Err(Refused::NotClaimed { fence }),
        }
    }
}
