//! The store against real SQLite files.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod leases;
mod logs;
mod mask;
mod outbox;
mod render;
mod runs;
mod support;
