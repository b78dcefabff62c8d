//! The session's process as its parent holds it (H5).

use std::{
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::UnixStream,
    process::{Child, ChildStderr, Command},
};

/// Which program is a session's process.
#[derive(Debug, Clone)]
pub struct Launch {
    pub program: PathBuf,
    /// The arguments that make it one.
    pub args: Vec<OsString>,
}

/// How much of a session's standard error is kept to explain its loss.
const LAST_WORDS: usize = 4 << 10;

/// A running session process. Dropping it kills the process group.
#[derive(Debug)]
pub struct SessionProcess {
    child: Child,
    group: Option<Pid>,
    stderr: Option<ChildStderr>,
}

impl SessionProcess {
    /// Starts the process with a fixed `PATH` as its whole environment and the socket as its standard input.
    pub fn spawn(launch: &Launch) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let socket = UnixStream::from_std(ours)?;
        let mut child = Command::new(&launch.program)
            .args(&launch.args)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let stderr = child.stderr.take();
        let process = Self {
            child,
            group,
            stderr,
        };
        Ok((process, socket))
    }

    /// The process's id, as long as it was not waited for.
    pub const fn id(&self) -> Option<Pid> {
        self.group
    }

    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.stderr.take()
    }

    /// Waits for the end of the process, and ends whatever it left in its group. May be dropped while it waits.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.kill();
        self.group = None;
        status
    }

    pub fn kill(&self) {
        if let Some(group) = self.group {
            // An error means that nobody is left in the group.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for SessionProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads everything and keeps the end of it, so that a chatty process never blocks on its own words.
pub async fn last_words(mut from: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(read) = from.read(&mut buffer).await
        && read > 0
    {
        kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let excess = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..excess);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
