//! The session's tests against real parts.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod protocols;
mod scripted;
mod support;
