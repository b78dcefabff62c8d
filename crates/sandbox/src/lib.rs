//! The one-shot sandbox: a fresh container for one phase, gone with everything it started when the phase ends (R4).
//!
//! ```text
//! Engine::open ───▶ Engine ──create(Plan)──▶ Sandbox ──spawn(ProcessSpec)──▶ Process
//!     │ a boundary is missing                   │ end(Cause), a limit, drop, or our own death
//!     ▼                                         ▼
//!  Refusal (exit 3)                     everything killed, everything removed ──▶ Outcome
//! ```
//!
//! Three processes make one sandbox. The *parent* (the process that uses this crate) decides; the *launcher* (one per
//! sandbox, outside, single-threaded) makes the cgroups and namespaces, watches the time, and tears down; *PID 1* (inside)
//! builds the mount tree, drops every right, and starts processes on request. Launcher and PID 1 are forks of the static
//! program `bulkhead-init`, which this crate embeds and executes once per engine, from a sealed memory file, as the *nursery*.
//!
//! Invariants:
//! - The cgroup, not a pid, is the unit of life: a sandbox has ended when its groups are empty and removed.
//! - Nothing weakens it: no environment variable, flag or file is read, and where a boundary is missing there is a
//!   [`Refusal`], never a sandbox without it (R3, case 54).
//! - Who dies last cleans up. The parent's death is the launcher's end of file; the launcher's death is PID 1's parent-death
//!   signal; what only a dead launcher could have removed is found by [`Engine::reap_orphans`] at the next start.
//! - A sandbox sees only what its [`Plan`] lists: the system directories read-only, the workspace, the listed binds.

mod access;
mod cgroup;
mod create;
mod driver;
mod engine;
mod error;
mod image;
mod keeper;
mod layout;
mod link;
mod orphans;
mod plan;
mod pool;
mod process;
mod processes;
mod program;
mod sandbox;
mod shared;
mod spec;
mod store;
mod sys;
mod system;
mod verdict;

pub mod doctor;
pub mod memory;
pub mod seccomp;

pub use bulkhead_model::{
    ids::SandboxId,
    limits::Limits,
    outcome::{EndReason, Evidence, Outcome, ResourceUse},
};
pub use engine::{Engine, EngineConfig, ImagePool, Orphan};
pub use error::{CreateError, ProcessError, Refusal, SpawnError};
pub use keeper::{Holds, Keeper};
pub use plan::{Bind, BoundSocket, Listener, Plan, Purpose, Transport, Workspace};
pub use process::{ExitStatus, Input, OUTPUT_GRACE, Output, Process, Target, Terminal};
pub use program::bytes as helper_program;
pub use sandbox::{Cause, Sandbox};
pub use seccomp::filter as seccomp_filter;
pub use spec::{ProcessSpec, Stdio, Stream, TerminalSize};

/// Where the workspace is inside, whatever it is made of. Writable, and the default working directory.
pub const WORKSPACE_DIR: &str = "/workspace";
/// The home directory inside: writable, empty at the start, gone with the sandbox.
pub const HOME_DIR: &str = "/home/agent";
/// The user and group id of every process that the plan's owner starts.
pub const AGENT_ID: u32 = 1000;
/// The user's name inside.
pub const AGENT_NAME: &str = "agent";
/// The search path inside, where a process's own environment names none.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
