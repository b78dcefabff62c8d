//! One session process: its start, its last words on standard error, and its certain end.

use std::{
    io,
    os::fd::OwnedFd,
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::UnixStream,
    process::{Child, ChildStderr, Command},
};

use super::{
    BuiltinConfig,
    journal::{Entry, Journal},
};
use crate::{PhaseKey, StartError};

/// How much of a session's standard error is kept to explain its loss.
const LAST_WORDS: usize = 4 << 10;

/// A running session process. Dropping it kills the process group.
#[derive(Debug)]
pub(super) struct SessionProcess {
    child: Child,
    group: Option<Pid>,
    stderr: Option<ChildStderr>,
    /// Removes the journal's entry when dropped.
    _entry: Entry,
}

impl SessionProcess {
    /// Starts the process with an environment of its own and the socket as its standard input.
    pub(super) fn spawn(
        config: &BuiltinConfig,
        key: &PhaseKey,
        journal: &Arc<Journal>,
    ) -> Result<(Self, UnixStream), StartError> {
        let failed = |source: io::Error| StartError::Spawn {
            program: config.program.display().to_string(),
            source,
        };
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let socket = UnixStream::from_std(ours).map_err(failed)?;
        let mut child = Command::new(&config.program)
            .args(&config.args)
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
            .spawn()
            .map_err(failed)?;
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        // Where the entry cannot be written the phase goes on: the socket's end still ends the session.
        let entry = journal.enter(key, group);
        let stderr = child.stderr.take();
        let process = Self {
            child,
            group,
            stderr,
            _entry: entry,
        };
        Ok((process, socket))
    }

    pub(super) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.stderr.take()
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        // The leader is reaped; whatever it left in its group ends with it.
        self.kill();
        self.group = None;
        status
    }

    pub(super) fn kill(&self) {
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
pub(super) async fn last_words(mut from: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(read) = from.read(&mut buffer).await
        && read > 0
    {
        kept.extend_from_slice(&buffer[..read]);
        let excess = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..excess);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
