//! Executors: what performs one attempt at one phase.
//!
//! The control plane hands a [`PhaseOrder`](bulkhead_model::PhaseOrder) and its [`PhaseSecrets`] to an
//! [`Executor`] and listens through a [`PhaseSink`]. The executor knows nothing of runs, gates or the
//! database: it starts one session process, relays what that process says, renews the lease while it
//! holds it, and answers with one [`PhaseReport`].

mod builtin;
mod executor;
mod lease;
mod report;
mod secrets;
mod sink;

pub use builtin::{BuiltinConfig, BuiltinExecutor};
pub use bulkhead_session::wire::{ArtifactChunk, ArtifactKind, FinishedArtifact, Machine};
pub use executor::{
    Executor, Orphan, OrphanKind, PhaseKey, Place, Running, StartError, StopReason,
};
pub use lease::{Hold, LeaseKeeper};
pub use report::{FailureKind, PhaseFailure, PhaseReport};
pub use secrets::{ArtifactFile, PhaseSecrets};
pub use sink::{PhaseSink, SinkError};
