//! The caps of a run, held against live usage.

use bulkhead_model::{
    Usage,
    run::{Cap, CapKind, CapScope, Run, RunCaps, Spent},
};

use crate::phase::settle::micro_usd;

/// The caps of the run; the phase's own are the session's to keep.
pub(super) struct Caps {
    run: RunCaps,
    /// What the run had used before this attempt.
    before: Spent,
}

impl Caps {
    pub(super) const fn of(run: &Run) -> Self {
        Self {
            run: run.plan.caps,
            before: run.spent,
        }
    }

    /// The cap that live usage goes over.
    pub(super) fn reached(&self, usage: &Usage) -> Option<Cap> {
        let turns = self.before.turns.saturating_add(u64::from(usage.turns));
        let cost = micro_usd(usage.cost_usd.unwrap_or(0.0));
        let cost = self.before.cost_micro_usd.saturating_add(cost);
        let kind = if self.run.cost_micro_usd.is_some_and(|cap| cost > cap) {
            CapKind::Cost
        } else if self.run.turns.is_some_and(|cap| turns > cap) {
            CapKind::Turns
        } else {
            return None;
        };
        Some(Cap {
            scope: CapScope::Run,
            kind,
        })
    }
}
