//! What the control plane must do because of a transition.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{CommitId, Fence, GateId, PhaseName, RunId},
    run::state::{End, Run},
};

/// The new run, and what to do. The same run without effects means that the event was a repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub run: Run,
    pub effects: Vec<Effect>,
}

/// Names one effect for ever: repeating the transition gives the same ids, so an effect that is stored
/// or performed twice can be recognised. Ordered: effects of one run are performed in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectId {
    pub run: RunId,
    pub version: u64,
    pub index: u32,
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.version, self.index)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    pub id: EffectId,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Find an executor for this attempt. Whoever takes it commits `Claimed` before starting anything;
    /// where that is refused the run has moved on, and the dispatch is dropped.
    Dispatch {
        phase: PhaseName,
        phase_index: u32,
        attempt: u32,
        fence: Fence,
        start: Option<CommitId>,
        comment: Option<String>,
    },
    /// See to it that nothing of this attempt lives, revoke its token, and report `PhaseEnded` if it is
    /// still the one in flight.
    StopPhase { phase: PhaseName, fence: Fence },
    /// Tell people, as the gate's policy says, that this gate waits.
    Notify { phase: PhaseName, gate: GateId },
    /// The run is over: revoke its tokens, drop its volume, release what it holds.
    FinishRun { end: End },
}
