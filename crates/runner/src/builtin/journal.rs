//! The journal of session processes: one small file each, so that a later life can find and end what an
//! earlier one left (cases 6 and 25).
//!
//! A file is written after the process exists and removed after it is reaped. A death between start and
//! file needs no entry: the new process sees its socket closed and exits. The process id is kept with the
//! kernel's start time, so that a recycled id is never mistaken for ours.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::{Orphan, OrphanKind, PhaseKey};

#[derive(Debug)]
pub(super) struct Journal {
    dir: PathBuf,
}

/// One file of the journal; removed when dropped.
#[derive(Debug)]
pub(super) struct Entry {
    path: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: i32,
    /// Field 22 of `/proc/PID/stat`: clock ticks after boot.
    started: u64,
    phase: String,
}

impl Journal {
    pub(super) fn open(dir: PathBuf) -> io::Result<Self> {
        // Where this comes first, it also makes the data directory, which others must not read either.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)?;
        Ok(Self { dir })
    }

    pub(super) fn enter(self: &Arc<Self>, key: &PhaseKey, pid: Option<Pid>) -> Entry {
        let path = self.path(key);
        let written = pid
            .ok_or_else(|| io::Error::other("the process has no id"))
            .and_then(|pid| {
                let pid = pid.as_raw_nonzero().get();
                let started = start_time(pid).unwrap_or_default();
                let phase = key.to_string();
                let json = serde_json::to_vec(&Record {
                    pid,
                    started,
                    phase,
                })?;
                fs::write(&path, json)
            });
        if let Err(error) = &written {
            tracing::warn!(%key, %error, "cannot enter a session into the journal");
        }
        Entry {
            path: written.ok().map(|()| path),
        }
    }

    fn path(&self, key: &PhaseKey) -> PathBuf {
        self.dir
            .join(format!("{}-{}-{}.json", key.run, key.phase, key.fence))
    }

    /// Ends the processes of every entry that is not of a living phase, and removes the entries.
    pub(super) async fn sweep(&self, alive: &[PhaseKey]) -> Vec<Orphan> {
        let living: Vec<PathBuf> = alive.iter().map(|key| self.path(key)).collect();
        let mut orphans = Vec::new();
        for path in entries(&self.dir) {
            if !living.contains(&path) {
                orphans.extend(sweep_entry(&path).await);
            }
        }
        orphans
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            drop(fs::remove_file(path));
        }
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(dir) else {
        return Vec::new();
    };
    found.flatten().map(|entry| entry.path()).collect()
}

async fn sweep_entry(path: &Path) -> Option<Orphan> {
    let record: Option<Record> = fs::read(path)
        .ok()
        .and_then(|json| serde_json::from_slice(&json).ok());
    let orphan = match record {
        Some(record) if is_running(&record) => Some(end(&record).await),
        // Torn by a crash, or of a process that ended by itself.
        _ => None,
    };
    if orphan.as_ref().is_none_or(|orphan| orphan.left.is_none()) {
        drop(fs::remove_file(path));
    }
    orphan
}

fn is_running(record: &Record) -> bool {
    start_time(record.pid).is_some_and(|started| started == record.started)
}

async fn end(record: &Record) -> Orphan {
    if let Some(pid) = Pid::from_raw(record.pid) {
        // An error means that nobody is left in the group.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let mut left = Some("it did not end within 5 s of SIGKILL".to_owned());
    for _ in 0..100 {
        if !is_running(record) {
            left = None;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Orphan {
        kind: OrphanKind::SessionProcess,
        what: format!("process {} of {}", record.pid, record.phase),
        left,
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
