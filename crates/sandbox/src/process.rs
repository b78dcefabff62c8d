//! A process inside, as its owner outside holds it.

use std::{
    fmt, io,
    os::fd::OwnedFd,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, unix::AsyncFd},
    net::unix::pipe::{Receiver, Sender},
    sync::{mpsc, watch},
};

use crate::{driver::Ask, error::ProcessError, processes::Started, spec::TerminalSize, sys};

/// How long output may still come after the process's end, from descendants that hold it open (case 20).
pub const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// What is read at most after that: the most that a pipe holds.
const LEFTOVER_BYTES: usize = 1 << 20;

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

/// The ends of a process's streams that stay outside.
#[derive(Debug, Default)]
pub(crate) struct OuterEnds {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
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
    token: u32,
    exited: watch::Receiver<Option<ExitStatus>>,
    asks: mpsc::WeakSender<Ask>,
    /// A second descriptor of the terminal, for its size, whoever has taken `terminal`.
    terminal_control: Option<OwnedFd>,
}

impl Process {
    pub(crate) fn new(
        started: Started,
        ends: OuterEnds,
        asks: mpsc::WeakSender<Ask>,
    ) -> io::Result<Self> {
        let Started {
            token,
            pid,
            terminal,
            exited,
        } = started;
        let output = |end: Option<OwnedFd>| end.map(|end| Output::new(end, &exited)).transpose();
        let terminal_control = terminal.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok(Self {
            stdin: ends
                .stdin
                .map(Sender::from_owned_fd)
                .transpose()?
                .map(Input),
            stdout: output(ends.stdout)?,
            stderr: output(ends.stderr)?,
            terminal: terminal
                .map(|end| Terminal::new(end, &exited))
                .transpose()?,
            pid,
            token,
            exited,
            asks,
            terminal_control,
        })
    }

    /// Its pid inside the sandbox.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end. May be called any number of times, and cancelled.
    pub async fn wait(&self) -> ExitStatus {
        let mut exited = self.exited.clone();
        let status = exited.wait_for(Option::is_some).await;
        status
            .ok()
            .and_then(|status| *status)
            .unwrap_or(ExitStatus::SandboxEnded)
    }

    /// Sends a signal by number. A process that is already gone is not an error.
    pub async fn signal(&self, signal: i32, target: Target) -> Result<(), ProcessError> {
        if self.exited.borrow().is_some() {
            return Ok(());
        }
        let asks = self.asks.upgrade().ok_or(ProcessError::SandboxEnded)?;
        let ask = Ask::Signal {
            token: self.token,
            target,
            signal,
        };
        asks.send(ask).await.map_err(|_| ProcessError::SandboxEnded)
    }

    /// Tells the terminal its new size.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ProcessError> {
        let terminal = self
            .terminal_control
            .as_ref()
            .ok_or(ProcessError::NoTerminal)?;
        let size = rustix::termios::Winsize {
            ws_row: size.rows,
            ws_col: size.columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(terminal, size)
            .map_err(|error| ProcessError::Io(error.into()))
    }
}

/// The writing end of a process's standard input.
#[derive(Debug)]
pub struct Input(Sender);

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

/// Says when a stream that nobody closes is over: the grace time after its process's end, or what a pipe may still hold
/// once that is past.
struct Grace {
    over: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    is_over: bool,
    leftover_bytes: usize,
}

impl Grace {
    fn after(exited: &watch::Receiver<Option<ExitStatus>>) -> Self {
        let mut exited = exited.clone();
        let over = async move {
            let _ = exited.wait_for(Option::is_some).await;
            tokio::time::sleep(OUTPUT_GRACE).await;
        };
        Self {
            over: Box::pin(over),
            is_over: false,
            leftover_bytes: LEFTOVER_BYTES,
        }
    }

    /// Whether nothing may be read any more.
    fn is_used_up(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_over = self.is_over || self.over.as_mut().poll(cx).is_ready();
        self.is_over && self.leftover_bytes == 0
    }

    fn count(&mut self, bytes: usize) {
        if self.is_over {
            self.leftover_bytes = self.leftover_bytes.saturating_sub(bytes);
        }
    }
}

impl fmt::Debug for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grace")
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

/// The reading end of a process's output. It ends when every writer has closed it or, where descendants still hold it,
/// a grace time after the process's own end (case 20).
#[derive(Debug)]
pub struct Output {
    pipe: Receiver,
    grace: Grace,
}

impl Output {
    fn new(end: OwnedFd, exited: &watch::Receiver<Option<ExitStatus>>) -> io::Result<Self> {
        Ok(Self {
            pipe: Receiver::from_owned_fd(end)?,
            grace: Grace::after(exited),
        })
    }
}

impl AsyncRead for Output {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.grace.is_used_up(cx) {
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        match Pin::new(&mut this.pipe).poll_read(cx, into) {
            Poll::Pending if this.grace.is_over => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
            done => {
                this.grace.count(into.filled().len() - before);
                done
            }
        }
    }
}

/// Both directions of a process's terminal. Reading ends as [`Output`] does.
#[derive(Debug)]
pub struct Terminal {
    file: AsyncFd<OwnedFd>,
    grace: Grace,
}

impl Terminal {
    fn new(end: OwnedFd, exited: &watch::Receiver<Option<ExitStatus>>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        let file = sys::watch(end)?;
        Ok(Self {
            file,
            grace: Grace::after(exited),
        })
    }
}

impl AsyncRead for Terminal {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.grace.is_used_up(cx) {
                return Poll::Ready(Ok(()));
            }
            let mut guard = match this.file.poll_read_ready(cx) {
                Poll::Pending if this.grace.is_over => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(guard) => guard?,
            };
            let free = into.initialize_unfilled();
            match guard.try_io(|file| Ok(rustix::io::read(file, &mut *free)?)) {
                Ok(Ok(count)) => {
                    into.advance(count);
                    this.grace.count(count);
                    return Poll::Ready(Ok(()));
                }
                // The kernel's word for a terminal whose last inner end is closed.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.file.poll_write_ready(cx))?;
            if let Ok(result) = guard.try_io(|file| Ok(rustix::io::write(file, bytes)?)) {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
