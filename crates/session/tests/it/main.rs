//! The session's tests against real parts.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod phases;
mod protocols;
mod scripted;
mod support;
mod world;
