//! What crosses crates: a crash at any moment, and whole runs end to end.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod crash;
mod e2e;
mod fake;
mod repo;
#[path = "../../../crates/session/tests/it/toolchain.rs"]
mod toolchain;
