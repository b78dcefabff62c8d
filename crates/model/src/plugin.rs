//! Plugins: what an invocation is, and what it may use (SPEC P1, P8, P20).

mod kind;
mod limits;
pub mod manifest;
pub mod rate;

pub use kind::InvocationKind;
pub use limits::{Demands, InvocationLimits, Lower, MemoryClass, PERMISSION_TRANSCODE, Transcodes};
