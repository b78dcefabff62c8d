//! What a run is at one moment: a value that is stored, shown and handed to [`crate::run::step`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    gate::Answer,
    ids::{CommitId, Fence, GateId, RunId},
    run::{
        event::Failure,
        plan::Plan,
        spent::{Cap, CapKind, CapScope, Spent},
    },
};

/// A run. Only [`crate::run::step`] changes it; each change raises `version` by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub id: RunId,
    pub version: u64,
    pub plan: Plan,
    pub status: Status,
    /// One for each phase of the plan, in its order.
    pub phases: Vec<Phase>,
    /// The branch's commit as last approved, delivered or found; the next phase starts from it.
    pub head: Option<CommitId>,
    pub last_fence: Fence,
    pub spent: Spent,
    /// The latest answers, so that a repeated one is recognised. The oldest are dropped.
    pub answered: Vec<Answered>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    Created,
    Running,
    Paused {
        since_ms: i64,
    },
    /// Ends as said, as soon as the attempt in flight is known to be over.
    Stopping {
        then: End,
    },
    Ended {
        end: End,
    },
}

/// How a run ended. An end is final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    Completed,
    /// By the named person; by nobody where the gate expired.
    Rejected {
        by: Option<String>,
    },
    Cancelled {
        by: String,
    },
    /// A cap of the whole run: no phase can help.
    Failed {
        cap: Cap,
    },
}

/// One phase of a run: where it is, and what stays over its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    pub state: PhaseState,
    /// Attempts dispatched so far.
    pub attempts: u32,
    /// Failures since the phase began or a person last let it run; retries count against it.
    pub failures: u32,
    /// The comment with which it was last sent back; part of its prompt until it is done.
    pub comment: Option<String>,
    pub spent: Spent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum PhaseState {
    /// An earlier phase is not done yet.
    Waiting,
    /// It is next, and is dispatched when the run resumes.
    Held,
    /// The order is out; nobody has claimed it.
    Dispatched(Attempt),
    /// A worker holds it.
    Running(Attempt),
    AtGate(Gate),
    Done {
        commit: Option<CommitId>,
        attempt: u32,
    },
    /// The run ended before it was done.
    Dropped,
}

/// One dispatch of one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Counts from 1.
    pub attempt: u32,
    pub fence: Fence,
    /// The commit that it starts from.
    pub start: Option<CommitId>,
    pub dispatched_ms: i64,
    pub started_ms: Option<i64>,
    /// The latest push that the gateway recorded for it.
    pub push: Option<Push>,
    /// The cap because of which it is being stopped.
    pub over: Option<Cap>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    pub old: Option<CommitId>,
    pub new: CommitId,
}

/// An open gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub id: GateId,
    /// The attempt that brought the phase here.
    pub attempt: u32,
    pub why: GateWhy,
    pub opened_ms: i64,
    pub expires_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum GateWhy {
    /// The phase succeeded and a person looks at it.
    Review,
    /// The phase did not succeed; Approve runs it again.
    Parked { failure: Failure },
}

/// A gate that was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    pub gate: GateId,
    pub answer: Answer,
    pub by: String,
    pub at_ms: i64,
}

impl Run {
    /// A run that has not started.
    pub fn new(id: RunId, plan: Plan) -> Self {
        let phases = plan.phases().iter().map(|_| Phase::default()).collect();
        Self {
            id,
            version: 0,
            plan,
            status: Status::Created,
            phases,
            head: None,
            last_fence: Fence(0),
            spent: Spent::default(),
            answered: Vec::new(),
        }
    }

    /// The phase that is held, in flight or at its gate, with its index. There is at most one.
    pub fn current(&self) -> Option<(usize, &Phase)> {
        let mut phases = self.phases.iter().enumerate();
        phases.find(|(_, phase)| phase.state.is_current())
    }

    /// The attempt that is dispatched or running.
    pub fn in_flight(&self) -> Option<(usize, &Attempt)> {
        let (index, phase) = self.current()?;
        Some((index, phase.state.attempt()?))
    }

    /// The gate that waits for an answer, with the index of its phase.
    pub fn open_gate(&self) -> Option<(usize, &Gate)> {
        let (index, phase) = self.current()?;
        match &phase.state {
            PhaseState::AtGate(gate) => Some((index, gate)),
            _ => None,
        }
    }

    /// The run's cap that what was spent has reached, if any.
    pub fn exhausted(&self) -> Option<Cap> {
        let caps = &self.plan.caps;
        let pairs = [
            (
                self.spent.cost_micro_usd,
                caps.cost_micro_usd,
                CapKind::Cost,
            ),
            (self.spent.turns, caps.turns, CapKind::Turns),
            (self.spent.time_ms, caps.time_ms, CapKind::Time),
        ];
        let over = |(spent, cap, _): &(u64, Option<u64>, _)| cap.is_some_and(|cap| *spent >= cap);
        pairs.into_iter().find(over).map(|(_, _, kind)| Cap {
            scope: CapScope::Run,
            kind,
        })
    }

    pub const fn end(&self) -> Option<&End> {
        match &self.status {
            Status::Ended { end } => Some(end),
            _ => None,
        }
    }

    /// The id of the gate that opens in the transition to `version`: derived, so that repeating the
    /// transition after a crash opens the same gate.
    pub(crate) fn gate_id(&self, version: u64) -> GateId {
        let fields = [
            self.id.as_uuid().into_bytes().to_vec(),
            version.to_le_bytes().to_vec(),
        ];
        let digest = Digest::of_fields("gate-id", &[&fields[0], &fields[1]]);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_bytes()[..16]);
        GateId::from_uuid(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl Default for Phase {
    fn default() -> Self {
        Self {
            state: PhaseState::Waiting,
            attempts: 0,
            failures: 0,
            comment: None,
            spent: Spent::default(),
        }
    }
}

impl PhaseState {
    const fn is_current(&self) -> bool {
        match self {
            Self::Held | Self::Dispatched(_) | Self::Running(_) | Self::AtGate(_) => true,
            Self::Waiting | Self::Done { .. } | Self::Dropped => false,
        }
    }

    pub const fn attempt(&self) -> Option<&Attempt> {
        match self {
            Self::Dispatched(attempt) | Self::Running(attempt) => Some(attempt),
            _ => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("completed"),
            Self::Rejected { by: Some(by) } => write!(f, "rejected by {by}"),
            Self::Rejected { by: None } => f.write_str("rejected: nobody answered in time"),
            Self::Cancelled { by } => write!(f, "cancelled by {by}"),
            Self::Failed { cap } => write!(f, "failed: reached {cap}"),
        }
    }
}
