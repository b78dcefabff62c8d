//! The executor's parts against real threads, processes and clocks.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod builtin;
mod lease;
mod session;
mod sink;
