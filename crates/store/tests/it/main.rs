//! The store against real SQLite files.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod disk;
mod leases;
mod logs;
mod mask;
mod outbox;
mod phases;
mod render;
mod retention;
mod runs;
mod secrets;
mod support;
