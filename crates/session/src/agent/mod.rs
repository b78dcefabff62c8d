//! Running the agent or the command: from its start to its end, by whatever limit comes first.
//!
//! ```text
//! start ─▶ talking ──"finished" by its own word──▶ leaving ──▶ exited
//!             │  silence · cancel · cap · bad line    │ a grace time
//!             └──────────────▶ stopping ◀─────────────┘
//!                                 TERM, then KILL
//! ```
//!
//! A result without an exit has a time limit of its own (case 23), and so has an exit whose output stays open
//! (case 20). Input is closed as soon as there is nothing left to say (case 22).

mod asked;
mod plain;
mod sink;
mod stop;
mod streams;
mod task;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use asked::{Asked, PROMPTS};
pub(crate) use sink::Caps;
pub(crate) use stop::{Reason, Stops};
pub(crate) use task::Task;
pub(crate) use work::{Run, work};
