//! The name of one attempt at one phase, and the proof of who may write for it.

use std::fmt;

use bulkhead_model::{Fence, PhaseName, RunId};
use serde::{Deserialize, Serialize};

use crate::error::{Result, corrupt};

/// One attempt at one phase of one run: what logs, events, tokens and pushes belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PhaseKey {
    pub run: RunId,
    pub phase: PhaseName,
    /// Counts from 1.
    pub attempt: u32,
}

impl PhaseKey {
    pub(crate) fn from_row(run: &str, phase: &str, attempt: i64) -> Result<Self> {
        Ok(Self {
            run: run.parse().map_err(corrupt("a run's id"))?,
            phase: phase.parse().map_err(corrupt("a phase's name"))?,
            attempt: u32::try_from(attempt).map_err(corrupt("a phase's attempt"))?,
        })
    }
}

impl fmt::Display for PhaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.phase, self.attempt)
    }
}

/// A phase attempt with the fencing number under which it is performed (D2). Whatever writes for a
/// phase shows this, and is refused when the run's lease has moved on or run out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Held {
    pub key: PhaseKey,
    pub fence: Fence,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under fence {}", self.key, self.fence)
    }
}
