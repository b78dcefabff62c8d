//! Executors: what performs one attempt at one phase.
//!
//! The control plane hands a [`PhaseOrder`](bulkhead_model::PhaseOrder) and its [`PhaseSecrets`] to an
//! [`Executor`] and listens through a [`PhaseSink`]. The executor knows nothing of runs, gates or the
//! database: it starts one session process, relays what that process says, renews the lease while it
//! holds it, and answers with one [`PhaseReport`].

mod executor;
mod lease;
mod report;
mod secrets;
mod sink;

pub use executor::{
    Executor, Orphan, OrphanKind, PhaseKey, Place, Running, StartError, StopReason,
};
pub use lease::{Hold, LeaseKeeper};
pub use report::{FailureKind, PhaseFailure, PhaseReport};
pub use secrets::PhaseSecrets;
pub use sink::{PhaseSink, SinkError};
