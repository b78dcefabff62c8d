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

//!
//! # An isolate copied ready, and not made in the child
//!
//! [`Isolate`] names both ways; the broker uses `Ready`. Measured by `examples/measure.rs` (release build, two cores that
//! others kept busy at a load of 5 to 9, 400 to 1,000 calls a row, a plugin of 10 KB with code cache, memory groups on; so the
//! relations hold and the figures are high):
//!
//! | | isolate made in the child | copied ready | copied, and rehearsed |
//! |---|---|---|---|
//! | `Start` to `Done`, as the caller waits, median µs | 559–592 | 888 | 415 |
//! | from the request to `Ready`, ahead of need, median µs | 3,426–4,899 | 739 | 2,059 |
//! | page faults from `Start` to a host call | 66–68 | 212 | 20 |
//! | page faults until `Ready` | 487–493 | 33 | 373 |
//! | own memory while it waits, KiB | 1,520–1,584 | 252 | 1,108 |
//! | own memory in the middle of a host call, KiB | 1,684–1,812 | 748 | 1,172 |
//! | calls a second without memory groups, one caller | 221–248 | 505–515 | 463–467 |
//!
//! A copy costs half the work of an isolate of one's own, so there are twice as many calls a second. What it lacks, its caller
//! would wait for: the pages that it has to copy when it first writes to them. The zygote finds those out by a rehearsal (module
//! `rehearsal`) and copies them while nobody waits. Copies share what was drawn once in the zygote (see [`CHILDREN_MAX`]);
//! `Math.random` is not among that, it asks the kernel each time.

mod child;
pub mod control;
mod filter;
mod guest;
mod launch;
#[cfg(debug_assertions)]
pub mod probe;
mod rehearsal;
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
