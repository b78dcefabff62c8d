//! The plugin service's broker (SPEC P1–P9, DESIGN D8 and D9): untrusted code, one process per invocation.
//!
//! The broker believes nothing that an invocation's process sends. [`host_calls`] is where what a plugin asks of `host`
//! is carried out, with the authority that [`context`] holds for one invocation.

pub mod call_error;
pub mod context;
pub mod fetch;
pub mod host_calls;
pub mod platform_link;
