//! The zygote: one process in which V8 stands ready, and which forks a locked-down process for each invocation of a plugin.
//!
//! ```text
//! broker (crate `isolates`) ──launch──▶ outer process ──fork──▶ zygote, PID 1 of its own pid namespace
//!    │  control: Fork ▼  ▲ Ready, Forked, ForkFailed, Exited      │ fork, ahead of need
//!    │  ◀────────────────────────────────────────────────────────▶│
//!    └──pipe (one per invocation, frames of `wire::pipe`)──▶ invocation process: enters its memory group, locks itself
//!                                                            down, serves one call, ends
//! ```

//!
//! Nothing but bytes on the pipe leads out of an invocation process, and nothing leads in but what was in the zygote's memory
//! when it forked: the zygote is started without an environment, is told nothing but numbers, and never runs a plugin.

mod child;
pub mod control;
mod filter;
mod guest;
mod launch;
#[cfg(debug_assertions)]
pub mod probe;
mod run;
mod sys;
mod walls;

pub use child::{NOT_LOCKED_DOWN, PANICKED};
pub use guest::{Guest, LoadError, Pipe};
pub use launch::{Isolate, Launched, MODE, Options, TestHooks, Usage, launch};
pub use run::{Fault, run};

/// After so many processes a zygote is to be replaced. Copies of one zygote share what it drew once: the seed of V8's hash
/// tables, that of this program's own, the layout of its addresses and the stack's guard values. Who learns them in one
/// process could use them in the next.
pub const CHILDREN_MAX: u32 = 1000;
