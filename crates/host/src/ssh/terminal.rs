//! A terminal on the machine, by way of one here: the master reads its size and modes from ours, and passes bytes on.

use std::{
    io::{self, Cursor},
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf, unix::AsyncFd,
};

use super::{
    SshError,
    master::Master,
    mux::Runs,
    process::{Begun, header, open},
    script::{BOOTSTRAP_IN_TERMINAL, TERMINAL_READY},
};
use crate::TerminalSize;

/// What may come before the machine's terminal passes bytes on.
const CHATTER_BYTES_MAX: usize = 64 << 10;

/// The outer end of our terminal.
#[derive(Debug, Clone)]
pub(super) struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl Terminal {
    fn new(size: TerminalSize) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let outer = openpt(flags)?;
        grantpt(&outer)?;
        unlockpt(&outer)?;
        let name = ptsname(&outer, Vec::new())?;
        let inner = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let inner = rustix::fs::open(name, inner, Mode::empty())?;
        rustix::io::ioctl_fionbio(&outer, true)?;
        tcsetwinsize(&outer, winsize(size))?;
        #[expect(
            deprecated,
            reason = "its unsoundness is about types whose descriptor may change; an owned one stays, and what replaces the call is unsafe"
        )]
        let outer = AsyncFd::new(outer)?;
        Ok((Self(Arc::new(outer)), inner))
    }

    /// Our terminal's new size, and word to the master that it has one.
    pub(super) async fn resize(&self, master: &Master, size: TerminalSize) -> Result<(), SshError> {
        tcsetwinsize(self.0.get_ref(), winsize(size))
            .map_err(|error| SshError::Streams(error.into()))?;
        let mut mux = master.mux().await?;
        let pid = i32::try_from(mux.master().await?)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(SshError::Ended)?;
        kill_process(pid, Signal::WINCH).map_err(|_| SshError::Ended)?;
        // The master notes the signal and looks at its note when it next wakes. One that was about to sleep is not woken
        // by the signal any more: a question wakes it.
        mux.master().await?;
        Ok(())
    }
}

const fn winsize(size: TerminalSize) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Opens the session, waits until the machine's terminal passes bytes on, and only then sends the line: before, it would be shown.
pub(super) async fn begin(
    master: &Master,
    kind: &str,
    size: TerminalSize,
    line: &str,
) -> Result<Begun, SshError> {
    let (mut terminal, inner) = Terminal::new(size).map_err(SshError::Streams)?;
    let runs = Runs::InTerminal(kind, BOOTSTRAP_IN_TERMINAL);
    let session = open(master, runs, [&inner, &inner, &inner]).await?;
    // The master has read the modes by now; from here on ours only passes bytes on.
    pass_bytes(&inner).map_err(SshError::Streams)?;
    drop(inner);
    await_ready(&mut terminal).await?;
    terminal
        .write_all(line.as_bytes())
        .await
        .map_err(SshError::Streams)?;
    let (header, rest) = header(&mut terminal).await?;
    Ok(Begun {
        session,
        header,
        stdin: Box::new(terminal.clone()),
        stdout: Box::new(Cursor::new(rest).chain(terminal.clone())),
        stderr: None,
        terminal: Some(terminal),
    })
}

fn pass_bytes(inner: &OwnedFd) -> io::Result<()> {
    let mut modes = tcgetattr(inner)?;
    modes.make_raw();
    Ok(tcsetattr(inner, OptionalActions::Now, &modes)?)
}

async fn await_ready(terminal: &mut Terminal) -> Result<(), SshError> {
    let mut seen = Vec::new();
    // Nothing follows these words until the line is sent, so nothing is lost by reading on.
    while !seen.ends_with(format!("{TERMINAL_READY}\n").as_bytes()) {
        let over = seen.len() > CHATTER_BYTES_MAX;
        if over
            || terminal
                .read_buf(&mut seen)
                .await
                .map_err(SshError::Streams)?
                == 0
        {
            let said = String::from_utf8_lossy(&seen);
            return Err(SshError::NoShell(said.trim().chars().take(500).collect()));
        }
    }
    Ok(())
}

impl AsyncRead for Terminal {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let unfilled = buffer.initialize_unfilled();
            let read = guard.try_io(|outer| Ok(rustix::io::read(outer.get_ref(), &mut *unfilled)?));
            match read {
                Ok(Ok(count)) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // Nobody holds the inner end any more: the session is over.
                Ok(Err(error))
                    if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) =>
                {
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
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(written) =
                guard.try_io(|outer| Ok(rustix::io::write(outer.get_ref(), bytes)?))
            {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
