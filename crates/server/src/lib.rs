//! The control plane: runs, phases and gates, and everything that makes them move.
//!
//! ```text
//!  API, command line ──requests──▶ one driver task per run ──model::run::step──▶ store (state + effects, one
//!                                        ▲                                       transaction)
//!                                        │ events                                      │
//!      executor ── report ──▶ phase task ┘ ◀── Dispatch ── outbox worker ◀─────────────┘
//! ```
//!
//! Only a run's driver changes its state; all others send it events. What must be done because of a change
//! is an effect in the outbox, performed at least once by the worker, each idempotent. Whatever a crash left
//! half-done is mended by the reconciler, at start and on a timer, by one idempotent code path.
//!
//! [`ControlPlane`] is a library: `bulkhead serve` puts the HTTP API in front of it, `bulkhead run` embeds it.

mod clock;
mod config;
mod control;
mod failpoint;
mod problem;
mod views;

pub use config::{Config, GitCredential, ModelUpstream, NotifyCommand, NotifyConfig, Retention};
pub use control::{Caller, ControlPlane, OpenError, Recovered, Scope};
pub use failpoint::FailPoints;
pub use problem::{Code, Problem, ProblemBody};
pub use views::{
    Answer, BindingView, CapsView, DecisionRequest, DiffView, EventView, FileChangeView, GateView,
    GateWhyView, LandMode, LandOutcome, LandRequest, LandView, LogLine, NewRun, News, Page,
    PauseRequest, PhaseStatus, PhaseView, RunQuery, RunStatus, RunView, SecretView, SpentView,
    StopAllView, TokenView, WorkflowSource,
};
