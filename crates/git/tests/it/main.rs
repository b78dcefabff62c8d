//! Git against real git and a real server socket.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod gateway;
mod support;
