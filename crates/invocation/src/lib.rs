//! One invocation of a plugin, inside its process and above the operating system: from the frame `Start` to the frame
//! `Done`, over one pipe to the broker (SPEC P1–P7, DESIGN D8 and D9).
//!
//! ```text
//! start ── Prepared::new ──(fork)── Prepared::serve: Ready ↑  Start ↓  { Call ↑  Waiting ↑  Answer ↓ }  Done ↑
//! ```
//!
//! [`start`] and [`Prepared`] are for the zygote: it makes an untouched isolate with the global object `host` in it,
//! forks, and the child serves it. Where each child makes its own isolate, the zygote keeps a [`Template`] instead.
//! Nothing here limits the process: that is the zygote's and the broker's work, which believe nothing of what this
//! side says. What V8 itself offers (its heap limit, the limit of buffers) makes better messages and is no wall.
//!
//! There is one thread, and no clock but the one that code inside may read: who takes too long is killed from outside.

mod bare;
mod check;
mod crypto;
mod drive;
mod fault;
mod host;
mod log;
mod pipe;
mod prepared;
mod random;
mod run;

pub use pipe::{PipeError, on_fatal_memory};
pub use prepared::{Options, PrepareError, Prepared, Template, start};
