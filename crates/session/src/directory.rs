//! The directories of sessions that are no phases: one each, private, with what is known of the session, its journal
//! and its transcript.
//!
//! ```text
//! running ─▶ paused ─▶ running ─▶ ended
//!    └── its parent died ─▶ found by whoever looks next: the journal is performed, ended
//! ```

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{protocol::Conversation, wire::SessionOrder};

const RECORD: &str = "session.json";
const MAX_RECORD: u64 = 4 << 20;
/// Ended sessions that are remembered; older ones are forgotten.
const REMEMBERED: usize = 50;

/// Where all sessions of a data directory are.
#[derive(Debug, Clone)]
pub struct Sessions {
    dir: PathBuf,
}

/// What is known of one session. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The session's file, as it was named.
    pub file: String,
    pub started_ms: i64,
    pub state: State,
    pub order: SessionOrder,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Running {
        /// The parent's process, and the kernel's start time of it, so that a recycled id is never mistaken for it.
        pid: i32,
        started: u64,
    },
    Paused {
        conversation: Option<Conversation>,
        /// Layers whose machines went with the pause.
        lost: Vec<String>,
    },
    Ended {
        ok: bool,
        words: Option<String>,
    },
}

impl Sessions {
    pub fn at(data_dir: &Path) -> Self {
        Self {
            dir: data_dir.join("sessions"),
        }
    }

    /// A new session's own directory.
    pub fn make(&self, id: &str) -> io::Result<PathBuf> {
        let dir = self.of(id)?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(dir)
    }

    /// The directory of the session of this id, or of the only one whose id begins so.
    pub fn find(&self, id: &str) -> io::Result<Option<PathBuf>> {
        let exact = self.of(id)?;
        if exact.is_dir() {
            return Ok(Some(exact));
        }
        let mut found = self.dirs().into_iter().filter(|dir| {
            let name = dir
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            name.is_some_and(|name| name.starts_with(id))
        });
        Ok(match (found.next(), found.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        })
    }

    fn of(&self, id: &str) -> io::Result<PathBuf> {
        let plain =
            !id.is_empty() && id.len() <= 64 && id.chars().all(|c| c.is_ascii_alphanumeric());
        match plain {
            true => Ok(self.dir.join(id)),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{id:?} is not the id of a session"),
            )),
        }
    }

    fn dirs(&self) -> Vec<PathBuf> {
        let Ok(found) = fs::read_dir(&self.dir) else {
            return vec![];
        };
        found.flatten().map(|entry| entry.path()).collect()
    }

    /// All sessions that can be read, the newest first.
    pub fn all(&self) -> Vec<(PathBuf, Record)> {
        let dirs = self.dirs().into_iter();
        let mut all: Vec<_> = dirs
            .filter_map(|dir| {
                let record = Record::read(&dir).ok()?;
                Some((dir, record))
            })
            .collect();
        all.sort_by_key(|(_, record)| std::cmp::Reverse(record.started_ms));
        all
    }

    /// Forgets the oldest of those that ended.
    pub fn forget_old(&self) {
        let ended = |record: &Record| matches!(record.state, State::Ended { .. });
        let all = self.all().into_iter().filter(|(_, record)| ended(record));
        for (dir, _) in all.skip(REMEMBERED) {
            drop(fs::remove_dir_all(dir));
        }
    }
}

impl Record {
    pub fn read(dir: &Path) -> io::Result<Self> {
        let path = dir.join(RECORD);
        if fs::metadata(&path)?.len() > MAX_RECORD {
            return Err(io::Error::other("the session's record is too large"));
        }
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Replaces what was known, all at once.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let new = dir.join("session.json.new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, dir.join(RECORD))
    }

    /// Whether its parent is there.
    pub fn is_running(&self) -> bool {
        match self.state {
            State::Running { pid, started } => start_time(pid) == Some(started),
            _ => false,
        }
    }
}

impl State {
    /// Running, with this process as the parent.
    pub fn running_here() -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self::Running {
            pid,
            started: start_time(pid).unwrap_or_default(),
        }
    }
}

/// None when there is no such process, or only its zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so the fields are counted after the last one.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
