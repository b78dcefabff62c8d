//! Real machines for tests: servers of the tests' own, on loopback or private sockets, in temporary directories, ended by pid
//! when their fixture is dropped. Several copies of a test suite may run on one machine at the same time.
#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot start fails the test"
)]

mod engine;
mod sshd;

pub use engine::ContainerEngine;
pub use sshd::{Account, ClientAlive, Sshd, SshdOptions};
