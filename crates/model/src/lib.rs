//! What the words of Bulkhead mean: ids, workflows, limits, outcomes, orders, events, and the state
//! machines that move them.
//!
//! Nothing here does I/O, awaits, reads a clock or draws a random number: time and ids come in as
//! arguments, so every rule can be tested exhaustively.

pub mod compose;
pub mod digest;
pub mod event;
pub mod gate;
pub mod ids;
pub mod lease;
pub mod limits;
pub mod network;
pub mod order;
pub mod outcome;
pub mod plugin;
pub mod run;
pub mod session;
pub mod workflow;

pub use digest::Digest;
pub use event::{AgentEvent, PhaseEvent, Stage, Stream, Usage};
pub use ids::{
    ArtifactName, CommitId, Fence, GateId, Label, PhaseName, RunId, SandboxId, SecretName,
};
pub use limits::Limits;
pub use network::{AllowEntry, EgressRule, HostName, NetworkPolicy};
pub use order::{AgentSpec, GitExtras, GitOrder, ModelGateway, PhaseOrder, Protocol, Work};
pub use outcome::{EndReason, Evidence, Outcome, ResourceUse};
