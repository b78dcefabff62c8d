//! The walls of the sandbox under attack: what tries to get out, and what tries to take too much.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod bombs;
mod escape;
mod support;
