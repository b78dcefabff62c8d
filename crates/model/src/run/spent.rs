//! What was used, and the caps on it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::Usage;

/// What was used, in whole numbers so that sums are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    /// Millionths of a US dollar, as the agents report them.
    pub cost_micro_usd: u64,
    pub turns: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Time in flight.
    pub time_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapScope {
    Phase,
    Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapKind {
    Cost,
    Turns,
    Time,
}

/// A cap that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cap {
    pub scope: CapScope,
    pub kind: CapKind,
}

impl Spent {
    /// From what an agent reported, which is not to be trusted: a cost that is no amount counts as none.
    pub fn of(usage: &Usage, time_ms: u64) -> Self {
        let micro = usage.cost_usd.unwrap_or(0.0) * 1e6;
        let micro = if micro.is_finite() {
            micro.max(0.0)
        } else {
            0.0
        };
        Self {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "not negative, and what is too large becomes the largest"
            )]
            cost_micro_usd: micro.ceil() as u64,
            turns: u64::from(usage.turns),
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            time_ms,
        }
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cost_micro_usd: self.cost_micro_usd.saturating_add(other.cost_micro_usd),
            turns: self.turns.saturating_add(other.turns),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            time_ms: self.time_ms.saturating_add(other.time_ms),
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.scope {
            CapScope::Phase => "the phase's",
            CapScope::Run => "the run's",
        };
        let kind = match self.kind {
            CapKind::Cost => "cost",
            CapKind::Turns => "turns",
            CapKind::Time => "time",
        };
        write!(f, "{scope} cap on {kind}")
    }
}
