//! The socket in a session's directory, over which another command asks its parent to pause it.

use std::{io, os::fd::AsRawFd as _, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use bulkhead_session::{Record, State, wire::ToSession};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::{mpsc, watch},
    time::timeout,
};

use crate::{
    failure::{Exit, Misuse},
    output::Output,
};

const NAME: &str = "control";
const PAUSING: Duration = Duration::from_secs(150);

/// A socket's path is short, and a data directory's need not be: it is named through the directory's descriptor.
fn through(dir: &Path) -> io::Result<(std::fs::File, std::path::PathBuf)> {
    let dir = std::fs::File::open(dir)?;
    let path = format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd());
    Ok((dir, path.into()))
}

pub(super) fn listen(dir: &Path) -> io::Result<UnixListener> {
    drop(std::fs::remove_file(dir.join(NAME)));
    let (_open, path) = through(dir)?;
    UnixListener::bind(path)
}

/// One word at a time: `pause`, answered when the session is over.
pub(super) async fn serve(
    socket: UnixListener,
    requests: mpsc::Sender<ToSession>,
    over: watch::Receiver<bool>,
) {
    while let Ok((mut stream, _)) = socket.accept().await {
        let mut word = [0; 5];
        let read = timeout(Duration::from_secs(5), stream.read_exact(&mut word)).await;
        if !matches!(read, Ok(Ok(_))) || &word != b"pause" {
            continue;
        }
        drop(requests.send(ToSession::Pause).await);
        let mut over = over.clone();
        drop(over.wait_for(|over| *over).await);
        drop(stream.write_all(b"over").await);
    }
}

pub(super) async fn pause(dir: &Path, record: &Record, output: Output) -> Result<Exit> {
    let id = &record.order.id;
    if !record.is_running() {
        let what = format!("the session {id} does not run");
        return Err(
            Misuse::usage_hint(what, "`bulkhead session list` shows where it stands").into(),
        );
    }
    let (_open, path) = through(dir).context("opening the session's directory")?;
    let asked = async {
        let mut stream = UnixStream::connect(path).await?;
        stream.write_all(b"pause").await?;
        let mut answer = vec![];
        stream.read_to_end(&mut answer).await
    };
    timeout(PAUSING, asked)
        .await
        .context("the session did not pause in time")?
        .context("asking the session to pause")?;
    // Its parent writes down how it ended right after.
    for _ in 0..100 {
        let now = Record::read(dir).context("reading what became of the session")?;
        match now.state {
            State::Running { .. } => tokio::time::sleep(Duration::from_millis(50)).await,
            State::Paused { .. } => {
                output.words(format_args!("{id} is paused."))?;
                output.json_object(&serde_json::json!({"session": id, "paused": true}))?;
                return Ok(Exit::Done);
            }
            State::Ended { words, .. } => {
                let words = words.unwrap_or_else(|| "it was done".to_owned());
                anyhow::bail!("the session {id} ended instead: {words}");
            }
        }
    }
    anyhow::bail!("the session {id} did not say that it is paused")
}
