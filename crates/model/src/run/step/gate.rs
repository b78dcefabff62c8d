//! Open gates: answers, and time running out.

use super::{Change, Walk};
use crate::{
    gate::{Answer, Decision, OnExpiry},
    ids::GateId,
    run::{
        effect::Action,
        refused::Refused,
        state::{Answered, End, Gate, GateWhy, PhaseState, Status},
    },
};

/// How many answers a run remembers, to recognise repeated ones.
const ANSWERS_KEPT: usize = 64;
/// The longest comment with which a phase can be sent back.
const COMMENT_BYTES_MAX: usize = 16 << 10;

impl Walk {
    pub(super) fn decide(&mut self, decision: &Decision) -> Result<Change, Refused> {
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

    pub(super) fn check_decision(&self, index: usize, decision: &Decision) -> Result<(), Refused> {
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

    pub(super) fn gate_expired(&mut self, gate: GateId) -> Result<Change, Refused> {
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

    pub(super) fn open_gate(&mut self, index: usize, attempt: u32, why: GateWhy) {
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

    pub(super) fn remember(&mut self, decision: &Decision) {
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

    pub(super) fn answer_to(&self, gate: GateId) -> Option<&Answered> {
        let mut latest = self.run.answered.iter().rev();
        latest.find(|answered| answered.gate == gate)
    }

    pub(super) fn gate(&self, gate: GateId) -> Result<(usize, GateWhy), Refused> {
        match self.run.open_gate() {
            Some((index, open)) if open.id == gate => Ok((index, open.why.clone())),
            _ => Err(Refused::NoSuchGate { gate }),
        }
    }
}
