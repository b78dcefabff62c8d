//! A process inside, as its owner outside holds it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{error::ProcessError, spec::TerminalSize};

/// How one process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
    /// It was killed with its whole sandbox; [`crate::Sandbox::end`] says why.
    SandboxEnded,
}

impl ExitStatus {
    pub const fn success(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

/// Whom a signal goes to. Every process is the leader of a session and group of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Process,
    Group,
}

/// A running process. Dropping it neither ends the process nor forgets it: the sandbox's end does.
#[derive(Debug)]
pub struct Process {
    /// Present where the spec asked for a pipe. Dropping it is the process's end of file.
    pub stdin: Option<Input>,
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    /// Present where the spec asked for a terminal: both directions of it.
    pub terminal: Option<Terminal>,
    pid: u32,
}

impl Process {
    /// Its pid inside the sandbox.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end. May be called any number of times, and cancelled.
    pub async fn wait(&self) -> ExitStatus {
        ExitStatus::SandboxEnded
    }

    /// Sends a signal by number. A process that is already gone is not an error.
    pub async fn signal(&self, signal: i32, target: Target) -> Result<(), ProcessError> {
        let _ = (signal, target);
        Err(ProcessError::SandboxEnded)
    }

    /// Tells the terminal its new size.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ProcessError> {
        let _ = size;
        Err(ProcessError::NoTerminal)
    }
}

/// The writing end of a process's standard input.
#[derive(Debug)]
pub struct Input(tokio::net::unix::pipe::Sender);

impl AsyncWrite for Input {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The reading end of a process's output. It ends when every writer has closed it or, where descendants still hold it,
/// a grace time after the process's own end (case 20).
#[derive(Debug)]
pub struct Output(tokio::net::unix::pipe::Receiver);

impl AsyncRead for Output {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

/// Both directions of a process's terminal. Reading ends as [`Output`] does.
#[derive(Debug)]
pub struct Terminal(());

impl AsyncRead for Terminal {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
