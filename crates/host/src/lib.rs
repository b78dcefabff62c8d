//! Hosts: the machines on which a session's commands and its agent run.
//!
//! A [`Host`] starts processes (H1). Describing one does nothing: the connection, and where the host makes one
//! the machine itself, comes into being at the first use, once, however many first uses there are at the same
//! time (H2). Tearing down does nothing either where nothing was connected (H3).
//!
//! [`SandboxHost`] is the only host here, so it is the only place where a phase can run: there is no local
//! host to fall back to (R3). A file system and port forwarding become further methods of [`Host`], and hosts
//! on other machines further implementations; a host that nests takes the host below it in its constructor
//! and starts its own tools there.

mod command;
mod error;
mod lazy;
mod process;
mod sandbox;

pub use command::{Command, Stdio, Stream, TerminalSize};
pub use error::HostError;
pub use lazy::Lazy;
pub use process::{ExitStatus, Process, ProcessControl, Reader, Signal, Target, Writer};
pub use sandbox::{Listeners, SandboxHost};

use async_trait::async_trait;

/// A machine, connected at its first use.
#[async_trait]
pub trait Host: Send + Sync + std::fmt::Debug {
    /// What it is, in words for people; says nothing that is secret and does nothing.
    fn describe(&self) -> String;

    /// Whether anything has been used yet, and so whether a teardown has anything to do.
    fn is_connected(&self) -> bool;

    /// Starts a process. Nothing is inherited: neither environment nor open files.
    async fn spawn(&self, command: Command) -> Result<Process, HostError>;

    /// Ends the connection, and the machine where the host made it. Does nothing where nothing was used, and
    /// nothing the second time.
    async fn teardown(&self) -> Result<(), HostError>;
}
