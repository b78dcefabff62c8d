//! The session's tests against real parts.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod agents;
mod canaries;
mod phases;
mod protocols;
mod real_agents;
mod scripted;
mod support;
mod toolchain;
mod world;
