//! The journal of undo steps: what has to be done where a session's process is killed before its teardowns (H4).
//!
//! ```text
//! entered, and on the disk ─▶ (the effect) ─▶ undone by the teardown ─▶ done, and on the disk
//!                                   └─ the process is killed: its parent performs the step
//! ```
//!
//! A step is written before its effect, so performing one whose effect never came must do no harm. Steps are
//! performed in reverse order, and performing them twice changes nothing.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bulkhead_model::session::HostPlug;
use serde::{Deserialize, Serialize};

const FILE: &str = "journal.jsonl";
/// Longer journals are no work of ours.
const MAX_BYTES: u64 = 16 << 20;

/// One thing to be undone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub enum Undo {
    /// A directory of the runner that is the session's own.
    RemoveDirectory { path: PathBuf },
    /// A file or socket of the runner.
    RemoveFile { path: PathBuf },
    /// Sandboxes of the engine in this directory whose owner is gone.
    Sandboxes { dir: PathBuf },
    /// A container, by its name, with the hosts that lead to its engine.
    Container {
        name: String,
        socket: PathBuf,
        through: Vec<HostPlug>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Step { step: u64, what: Undo },
    Done { done: u64 },
}

/// The session's journal. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    shared: Arc<Mutex<Open>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    next: u64,
}

impl Journal {
    /// Opens the journal in `dir`, after whatever is in it already.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let next = read(dir)?.last_key_value().map_or(0, |(step, _)| step + 1);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(dir.join(FILE))?;
        let shared = Arc::new(Mutex::new(Open { file, next }));
        Ok(Self { shared })
    }

    /// Writes the step to the disk and returns; the effect may follow.
    pub(crate) fn enter(&self, what: Undo) -> io::Result<UndoEntry> {
        let mut open = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let step = open.next;
        open.next += 1;
        append(&mut open.file, &Line::Step { step, what })?;
        Ok(UndoEntry {
            of: Some((self.clone(), step)),
        })
    }
}

/// A step that stands in the journal until it is [done](Self::done). Dropping it leaves it there.
#[derive(Debug)]
#[must_use = "a step that is never done is performed after the session"]
pub struct UndoEntry {
    /// None where there is no journal: a phase's executor sweeps by itself.
    of: Option<(Journal, u64)>,
}

impl UndoEntry {
    pub(super) const fn nowhere() -> Self {
        Self { of: None }
    }

    /// The teardown undid it, or the effect never came.
    pub fn done(self) -> io::Result<()> {
        let Some((journal, done)) = self.of else {
            return Ok(());
        };
        let mut open = journal
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        append(&mut open.file, &Line::Done { done })
    }
}

fn append(file: &mut File, line: &Line) -> io::Result<()> {
    let mut json = serde_json::to_vec(line)?;
    json.push(b'\n');
    file.write_all(&json)?;
    file.sync_data()
}

/// The steps of the journal in `dir` that are not done, by their numbers. A line that was cut by the death of its
/// writer is none: its effect never came.
pub(crate) fn read(dir: &Path) -> io::Result<BTreeMap<u64, Undo>> {
    let path = dir.join(FILE);
    let mut steps = BTreeMap::new();
    let text = match std::fs::metadata(&path) {
        Ok(found) if found.len() > MAX_BYTES => {
            let words = format!("{} is larger than {MAX_BYTES} bytes", path.display());
            return Err(io::Error::other(words));
        }
        Ok(_) => std::fs::read_to_string(&path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(steps),
        Err(error) => return Err(error),
    };
    for line in text.lines() {
        match serde_json::from_str(line) {
            Ok(Line::Step { step, what }) => drop(steps.insert(step, what)),
            Ok(Line::Done { done }) => drop(steps.remove(&done)),
            Err(error) => tracing::debug!(%error, "a line of a session's journal"),
        }
    }
    Ok(steps)
}

/// Notes that `step` was performed.
pub(crate) fn mark_done(dir: &Path, step: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(dir.join(FILE))?;
    append(&mut file, &Line::Done { done: step })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn h4_steps_stand_until_they_are_done_and_a_torn_line_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path()).unwrap();
        let step = |path: &str| Undo::RemoveFile { path: path.into() };
        let first = journal.enter(step("/a")).unwrap();
        let second = journal.enter(step("/b")).unwrap();
        first.done().unwrap();
        drop(second);
        let mut file = OpenOptions::new()
            .append(true)
            .open(dir.path().join(FILE))
            .unwrap();
        file.write_all(b"{\"step\":2,\"what\":{\"und").unwrap();
        let left = read(dir.path()).unwrap();
        assert_eq!(left.into_iter().collect::<Vec<_>>(), [(1, step("/b"))]);
        mark_done(dir.path(), 1).unwrap();
        // The torn line swallowed the mark, which only means that the step is performed once more.
        assert!(read(dir.path()).unwrap().len() <= 1);
    }
}
