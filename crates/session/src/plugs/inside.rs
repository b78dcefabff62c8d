//! Running a helper process on the host and taking its bounded output.

use std::time::Duration;

use bulkhead_host::{Command, ExitStatus, Host, HostError, Process, Reader};
use tokio::{io::AsyncReadExt as _, time::timeout};

/// The most bytes of a helper's output that are kept.
const KEPT: usize = 16 << 10;

/// How long a helper's output may stay open after its exit (case 20).
const LINGER: Duration = Duration::from_secs(2);

/// A helper process did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{what} {status}{}", said(.stderr))]
    Failed {
        what: String,
        status: ExitStatus,
        stderr: String,
    },
    #[error("{what}")]
    Io {
        what: String,
        #[source]
        source: std::io::Error,
    },
}

fn said(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        words => format!("; it said: {words}"),
    }
}

/// How a helper ended, and what it said: the beginning of its output, the end of its errors.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Helper {
    /// Success, or an error that says what failed.
    pub(crate) fn check(self, what: &str) -> Result<Self, RunError> {
        if self.status.success() {
            return Ok(self);
        }
        Err(RunError::Failed {
            what: what.to_owned(),
            status: self.status,
            stderr: self.stderr,
        })
    }
}

/// Runs `command` to its end.
pub(crate) async fn run(host: &dyn Host, command: Command) -> Result<Helper, HostError> {
    let process = host.spawn(command).await?;
    Ok(collect(process).await)
}

/// Waits for a process that nobody writes to any more.
pub(crate) async fn collect(mut process: Process) -> Helper {
    drop(process.stdin.take());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = {
        let out = keep_first(process.stdout.take(), &mut stdout);
        let errors = keep_last(process.stderr.take(), &mut stderr);
        let reading = async { tokio::join!(out, errors) };
        tokio::pin!(reading);
        tokio::select! {
            _ = &mut reading => process.control.wait().await,
            status = process.control.wait() => {
                let _ = timeout(LINGER, &mut reading).await;
                status
            }
        }
    };
    Helper {
        status,
        stdout,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

async fn keep_first(reader: Option<Reader>, kept: &mut Vec<u8>) {
    let Some(mut reader) = reader else { return };
    let mut piece = vec![0; 8 << 10];
    while let Ok(count @ 1..) = reader.read(&mut piece).await {
        let room = KEPT.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(piece.get(..room).unwrap_or_default());
    }
}

async fn keep_last(reader: Option<Reader>, kept: &mut Vec<u8>) {
    let Some(mut reader) = reader else { return };
    let mut piece = vec![0; 8 << 10];
    while let Ok(count @ 1..) = reader.read(&mut piece).await {
        kept.extend_from_slice(piece.get(..count).unwrap_or_default());
        let excess = kept.len().saturating_sub(KEPT);
        kept.drain(..excess);
    }
}
