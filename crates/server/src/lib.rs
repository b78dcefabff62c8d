//! The control plane: runs, phases and gates, and everything that makes them move.
//!
//! ```text
//!  API, command line ──requests──▶ Plane::post ──model::run::step──▶ store (state + effects, one transaction)
//!                                     ▲                                       │
//!                                     │ events                                │
//!      executor ── report ──▶ phase task ◀── Dispatch ── outbox worker ◀──────┘
//!                                     ▲
//!                          reconciler ┘ (at start, on a timer)
//! ```
//!
//! Nobody changes a run but the pure machine, and all events stand in one queue: the store's single writer.
//! What must be done because of a change is an effect in the outbox, performed at least once by the worker,
//! each idempotent. Whatever a crash left half-done is mended by the reconciler, by one idempotent code path.
//!
//! [`ControlPlane`] is a library: `bulkhead serve` puts the HTTP API in front of it, `bulkhead run` embeds it.

mod api;
mod backoff;
mod clock;
mod config;
mod control;
mod create;
mod diff;
mod failpoint;
mod finish;
mod follow;
mod gates;
mod gateway;
mod land;
mod ledger;
mod logs;
mod models;
mod notify;
mod outbox;
mod phase;
mod plane;
mod problem;
mod reconcile;
mod repos;
mod resolve;
mod retention;
mod show;
mod spec;
mod views;
mod webhook;

pub use api::openapi;
pub use bulkhead_git::GitProgram;
pub use bulkhead_store::MasterKey;
pub use clock::{Clock, ManualClock};
pub use config::{
    Config, GitCredential, ModelUpstream, NotifyCommand, NotifyConfig, Retention, Submodule,
};
pub use control::{Caller, ControlPlane, OpenError, Recovered, Scope};
pub use failpoint::FailPoints;
pub use problem::{Code, Problem, ProblemBody};
pub use views::{
    Answer, ArtifactView, BindingView, DecisionRequest, DiffView, EventView, FileChangeView,
    GateView, GateWhyView, LandMode, LandOutcome, LandRequest, LandView, LogLine, NewRun, News,
    Page, PauseRequest, PhaseStatus, PhaseView, RunQuery, RunStatus, RunView, SecretView,
    SpentView, StopAllView, TokenView, WorkflowSource,
};
