//! The zygote: one process in which V8 stands ready, and which forks a locked-down process for each invocation of a plugin.
//!
//! ```text
//! broker (crate `isolates`) ──launch──▶ outer process ──fork──▶ zygote, PID 1 of its own pid namespace
//!    │  control: Fork ▼  ▲ Ready, Forked, ForkFailed, Exited      │ fork, ahead of need
//!    │  ◀────────────────────────────────────────────────────────▶│
//!    └──pipe (one per invocation, frames of `wire::pipe`)──▶ invocation process: enters its memory group, locks itself
//!                                                            down, serves one call, ends
//! ```

pub mod control;
mod launch;

pub use launch::{Isolate, Launched, MODE, Options, TestHooks, Usage, launch};
