//! What tests of plugins talk to: servers on loopback that say exactly what a test wants, a resolver that is a table, and
//! a complete fake of the platform.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

pub mod net;
pub mod platform;
pub mod tls;
