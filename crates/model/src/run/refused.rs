//! Why an event does not apply. Nothing has changed then.

use crate::{
    gate::{Answer, BindingPart},
    ids::{CommitId, Fence, GateId},
    run::{spent::Cap, state::End},
};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the run has ended: {end}")]
    Ended { end: End },
    #[error("the run has not started")]
    NotStarted,
    #[error("the run has started already")]
    AlreadyStarted,
    #[error("the run is stopping and takes no more of this")]
    Stopping,
    #[error("fence {shown} is stale: {}", current_fence(.current))]
    StaleFence {
        shown: Fence,
        current: Option<Fence>,
    },
    #[error("the attempt with fence {fence} was not claimed")]
    NotClaimed { fence: Fence },
    #[error("the attempt with fence {fence} was claimed already")]
    AlreadyClaimed { fence: Fence },
    #[error("the attempt with fence {fence} recorded no push to {head}")]
    NoSuchPush { fence: Fence, head: CommitId },
    #[error("the push starts from another commit than the branch's {expected:?}")]
    PushFromElsewhere { expected: Option<CommitId> },
    #[error("the run has no repository, so nothing can be pushed")]
    NoRepository,
    #[error("the run has a repository, so it needs the commit to start from")]
    NoBase,
    #[error("gate {gate} is not open")]
    NoSuchGate { gate: GateId },
    #[error("gate {gate} was answered with {answer} by {by}")]
    Answered {
        gate: GateId,
        answer: Answer,
        by: String,
    },
    /// The decision is void: what the person saw is no longer so.
    #[error("what was decided on has changed ({}): look at the gate again", parts(.changed))]
    Void { changed: Vec<BindingPart> },
    #[error("{by} is not one of this gate's approvers")]
    NotAnApprover { by: String },
    #[error("a comment needs 1 to {max} bytes and has {size}")]
    Comment { size: usize, max: usize },
    #[error("the gate does not expire yet: {left_ms} ms are left")]
    NotExpired { left_ms: i64 },
    #[error("this gate does not expire")]
    NeverExpires,
    #[error("the run is paused, and the gate's clock stands still")]
    Paused,
    #[error("the run has reached {cap}: the phase cannot run again")]
    CapReached { cap: Cap },
}

fn current_fence(current: &Option<Fence>) -> String {
    current.map_or("nothing is in flight".to_owned(), |fence| {
        format!("{fence} is in flight")
    })
}

fn parts(changed: &[BindingPart]) -> String {
    let names: Vec<_> = changed.iter().map(ToString::to_string).collect();
    names.join(", ")
}
