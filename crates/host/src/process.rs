//! A running process, as its owner holds it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{HostError, TerminalSize};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
    /// It went down with its host, which knows why.
    HostEnded,
}

impl ExitStatus {
    pub const fn success(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::HostEnded => f.write_str("ended with its host"),
        }
    }
}

/// Signals by name: their numbers differ between systems, and a host may be of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Hangup,
    Interrupt,
    Quit,
    User1,
    User2,
    Terminate,
    Stop,
    Continue,
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Process,
    /// The process and those of its descendants that did not leave its group.
    Group,
}

/// What can be done to a process besides reading and writing its streams.
#[async_trait]
pub trait ProcessControl: Send + Sync {
    /// Waits for the end. May be called often, and dropped while it waits.
    async fn wait(&self) -> ExitStatus;

    /// Sends a signal. A process that is already gone is not an error.
    async fn signal(&self, signal: Signal, target: Target) -> Result<(), HostError>;

    /// Tells the process's terminal, where it has one, its new size.
    async fn resize(&self, size: TerminalSize) -> Result<(), HostError>;
}

/// The writing end of a stream; dropping it is the end of file.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;
/// The reading end of a stream.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// A running process. Dropping it does not end it: signals and the host's teardown do.
pub struct Process {
    /// Present where the command asked for a pipe; for a terminal, its writing side.
    pub stdin: Option<Writer>,
    /// Present where the command asked for a pipe; for a terminal, its reading side.
    pub stdout: Option<Reader>,
    pub stderr: Option<Reader>,
    pub control: Arc<dyn ProcessControl>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}
