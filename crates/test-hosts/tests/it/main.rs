//! The fixtures themselves: what tests of hosts rest on.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod engine;
mod sshd;
