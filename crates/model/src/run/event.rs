//! What happens to a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    gate::Decision,
    ids::{CommitId, Fence, GateId},
    outcome::EndReason,
    run::spent::{Cap, Spent},
};

/// Something that happened, to be worked into the run by [`crate::run::step`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// The base is resolved and the branch exists: begin.
    Start {
        base: Option<CommitId>,
    },
    /// A worker took the dispatch and its lease.
    Claimed {
        fence: Fence,
    },
    /// The agent or command of the phase runs.
    Started {
        fence: Fence,
    },
    /// The git gateway is about to forward this push of the run's branch.
    Pushed {
        fence: Fence,
        /// None creates the branch.
        old: Option<CommitId>,
        new: CommitId,
    },
    /// The executor's report, with the branch as the control plane reads it upstream afterwards.
    PhaseEnded {
        fence: Fence,
        result: PhaseEnd,
        head: Option<CommitId>,
        spent: Spent,
    },
    /// Recovery found the recorded push upstream, and in it the phase's completing commit.
    PushConfirmed {
        fence: Fence,
        head: CommitId,
        spent: Spent,
    },
    /// The lease of the attempt expired. Where a push was recorded, recovery compares it with the
    /// upstream first and sends `PushConfirmed` instead if it landed.
    LeaseLost {
        fence: Fence,
        head: Option<CommitId>,
        spent: Spent,
    },
    /// Live usage went over a cap.
    CapReached {
        fence: Fence,
        cap: Cap,
    },
    Decision(Decision),
    /// The time for answering this gate is over.
    GateExpired {
        gate: GateId,
    },
    Pause {
        mode: PauseMode,
    },
    Resume,
    /// `by` is the token's name, or the switch that stops everything.
    Cancel {
        by: String,
    },
    /// The control plane came up again and the session of this attempt is gone. Where a push was recorded,
    /// recovery compares it with the upstream first, as for `LeaseLost`. `head` is the branch upstream.
    Restarted {
        fence: Fence,
        head: Option<CommitId>,
    },
}

/// What happens to the phase in flight when its run is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// It ends by itself; nothing new is dispatched.
    Finish,
    /// It is stopped, what it did not push is discarded, and it is dispatched again at Resume. An attempt
    /// that has already pushed ends by itself, so that its work is not done twice.
    Stop,
}

/// How one attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseEnd {
    Succeeded,
    Failed(Failure),
}

/// Why an attempt did not make its phase done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Failure {
    /// The sandbox's main process ended without success.
    Ended {
        reason: EndReason,
    },
    /// A boundary could not be built, so nothing was run (R3).
    Refused {
        why: String,
    },
    /// The workspace could not be cloned, committed or pushed.
    Workspace {
        why: String,
    },
    /// The agent broke its protocol or said itself that it failed.
    Agent {
        why: String,
    },
    /// Nobody knows how it ended: the lease expired.
    Lost,
    Cap {
        cap: Cap,
    },
    /// It reported success, but the branch is not where its recorded push put it.
    NotDelivered {
        recorded: Option<CommitId>,
        found: Option<CommitId>,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { reason } => write!(f, "the phase {reason}"),
            Self::Refused { why } => write!(f, "the sandbox could not be built: {why}"),
            Self::Workspace { why } => write!(f, "the workspace failed: {why}"),
            Self::Agent { why } => write!(f, "the agent failed: {why}"),
            Self::Lost => f.write_str("the phase was lost: its lease expired"),
            Self::Cap { cap } => write!(f, "the phase reached {cap}"),
            Self::NotDelivered { recorded, found } => {
                let name = |commit: &Option<CommitId>| {
                    commit
                        .as_ref()
                        .map_or("nothing".to_owned(), CommitId::to_string)
                };
                let (recorded, found) = (name(recorded), name(found));
                write!(
                    f,
                    "the phase's work did not arrive: {recorded} was pushed, the branch holds {found}"
                )
            }
        }
    }
}
