//! Logs: the raw output of phases, masked, in files behind one trait.
//!
//! ```text
//!   session ──chunks──▶ LogSink: mask, limit, bridge errors ──entries──▶ LogStore ──▶ readers, followers
//! ```
//!
//! Every entry has a sequence number without a gap in it; what could not be kept is an entry too, a
//! [`Marker`] that counts it. An acknowledged entry survives the death of this process at any moment.

mod file;
mod format;
pub mod render;
mod rows;
mod sink;

use std::{
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use tokio::{sync::watch, task::spawn_blocking};

pub use format::{Body, Entry, GapReason, LogEnd, MAX_BODY, Marker, NewEntry};
pub use sink::{LogSink, SinkConfig};

use crate::PhaseKey;
use file::LogFile;

/// Why a log could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the disk is full: the log of {key} could not be written")]
    DiskFull { key: PhaseKey, source: io::Error },
    #[error("could not {doing} the log of {key}")]
    File {
        doing: &'static str,
        key: PhaseKey,
        source: io::Error,
    },
    #[error("there is no log of {key}")]
    NotFound { key: PhaseKey },
    /// The writer's fence no longer holds.
    #[error("the writer of a log may write no more")]
    Stale(#[source] crate::Error),
}

/// How far a log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// The sequence that the next entry will have; all before it can be read.
    pub next_seq: u64,
    /// Nothing follows.
    pub sealed: bool,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// From where to go on.
    pub next_seq: u64,
    /// The log's tail is sealed and this page reaches it.
    pub complete: bool,
}

/// Where logs are kept. Each has one writer, and any number of readers.
pub trait LogStore: fmt::Debug + Send + Sync + 'static {
    /// Keeps all entries or, with an error, none. Returns the sequence of the last.
    fn append<'a>(
        &'a self,
        key: &'a PhaseKey,
        entries: Vec<NewEntry>,
    ) -> BoxFuture<'a, Result<u64, Rejected>>;

    /// Entries from a sequence on (the first is 1), about `max_bytes` of them.
    fn read<'a>(
        &'a self,
        key: &'a PhaseKey,
        from: u64,
        max_bytes: usize,
    ) -> BoxFuture<'a, Result<Page, LogError>>;

    /// How far the log goes, now and whenever that changes. A receiver whose sender is gone has seen
    /// the last.
    fn follow<'a>(
        &'a self,
        key: &'a PhaseKey,
    ) -> BoxFuture<'a, Result<watch::Receiver<Tail>, LogError>>;

    /// Ends a log whose writer was killed. Does nothing to a complete one.
    fn recover<'a>(
        &'a self,
        key: &'a PhaseKey,
        now_ms: i64,
    ) -> BoxFuture<'a, Result<Tail, LogError>>;

    /// Deletes a log; none is no error. Returns the bytes that it had.
    fn remove<'a>(&'a self, key: &'a PhaseKey) -> BoxFuture<'a, Result<u64, LogError>>;

    /// All logs that are kept, with their sizes in bytes.
    fn list(&self) -> BoxFuture<'_, Result<Vec<(PhaseKey, u64)>, io::Error>>;
}

/// Entries that were not kept, given back.
#[derive(Debug, thiserror::Error)]
#[error("entries of a log were not kept")]
pub struct Rejected {
    pub entries: Vec<NewEntry>,
    #[source]
    pub error: LogError,
}

/// Logs as files in a directory: `RUN/PHASE.ATTEMPT.log`.
#[derive(Debug, Clone)]
pub struct LocalLogs {
    root: PathBuf,
    open: Arc<Mutex<HashMap<PhaseKey, OpenLog>>>,
}

#[derive(Debug, Clone)]
struct OpenLog {
    file: Arc<Mutex<LogFile>>,
    tail: watch::Sender<Tail>,
}

impl LocalLogs {
    /// Logs below a directory that exists, for example [`crate::DataDir::logs`].
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            open: Arc::default(),
        }
    }

    pub fn path(&self, key: &PhaseKey) -> PathBuf {
        self.root
            .join(key.run.to_string())
            .join(format!("{}.{}.log", key.phase, key.attempt))
    }

    /// The log's writer, opened at its first use.
    fn writer(&self, key: &PhaseKey) -> io::Result<OpenLog> {
        let mut open = guard(&self.open);
        if let Some(log) = open.get(key) {
            return Ok(log.clone());
        }
        let path = self.path(key);
        if let Some(parent) = path.parent() {
            make_private(parent)?;
        }
        let file = LogFile::open(&path)?;
        let log = OpenLog {
            tail: watch::Sender::new(tail(&file)),
            file: Arc::new(Mutex::new(file)),
        };
        open.insert(key.clone(), log.clone());
        Ok(log)
    }

    fn append_now(&self, key: &PhaseKey, entries: &[NewEntry]) -> io::Result<u64> {
        let log = self.writer(key)?;
        let mut file = guard(&log.file);
        let last = file.append(entries)?;
        log.tail.send_replace(tail(&file));
        if file.is_sealed() {
            // Followers keep the last tail; later ones find it in the file.
            guard(&self.open).remove(key);
        }
        Ok(last)
    }

    fn tail_now(&self, key: &PhaseKey) -> io::Result<Tail> {
        if let Some(log) = guard(&self.open).get(key) {
            return Ok(*log.tail.borrow());
        }
        let end = file::end(&self.path(key))?;
        Ok(Tail {
            next_seq: end.next_seq,
            sealed: end.sealed,
        })
    }

    fn read_now(&self, key: &PhaseKey, from: u64, max_bytes: usize) -> io::Result<Page> {
        // The tail first: what it promises is in the file by then.
        let tail = self.tail_now(key)?;
        let mut entries = file::read(&self.path(key), from, max_bytes)?;
        entries.retain(|entry| entry.seq < tail.next_seq);
        let next_seq = entries.last().map_or(from, |entry| entry.seq + 1);
        Ok(Page {
            entries,
            next_seq,
            complete: tail.sealed && next_seq >= tail.next_seq,
        })
    }

    fn follow_now(&self, key: &PhaseKey) -> io::Result<watch::Receiver<Tail>> {
        if let Some(log) = guard(&self.open).get(key) {
            return Ok(log.tail.subscribe());
        }
        let end = self.tail_now(key)?;
        if end.sealed {
            return Ok(watch::Sender::new(end).subscribe());
        }
        Ok(self.writer(key)?.tail.subscribe())
    }

    fn recover_now(&self, key: &PhaseKey, now_ms: i64) -> io::Result<Tail> {
        let before = self.tail_now(key)?;
        if !before.sealed {
            self.append_now(key, &[end_entry(LogEnd::Recovered, now_ms)])?;
        }
        self.tail_now(key)
    }

    fn remove_now(&self, key: &PhaseKey) -> io::Result<u64> {
        guard(&self.open).remove(key);
        let path = self.path(key);
        let mut bytes = 0;
        for path in [file::index_path(&path), path.clone()] {
            bytes += fs::metadata(&path).map_or(0, |meta| meta.len());
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if let Some(parent) = path.parent() {
            // Goes with the last log of its run.
            let _ = fs::remove_dir(parent);
        }
        Ok(bytes)
    }

    /// Runs blocking work where blocking is allowed.
    async fn blocking<T: Send + 'static>(
        &self,
        key: &PhaseKey,
        doing: &'static str,
        work: impl FnOnce(Self, &PhaseKey) -> io::Result<T> + Send + 'static,
    ) -> Result<T, LogError> {
        let (logs, at) = (self.clone(), key.clone());
        let done = spawn_blocking(move || work(logs, &at)).await;
        done.unwrap_or_else(|panic| Err(io::Error::other(panic)))
            .map_err(|source| log_error(doing, key, source))
    }
}

impl LogStore for LocalLogs {
    fn append<'a>(
        &'a self,
        key: &'a PhaseKey,
        entries: Vec<NewEntry>,
    ) -> BoxFuture<'a, Result<u64, Rejected>> {
        Box::pin(async move {
            let (logs, at, entries) = (self.clone(), key.clone(), Arc::new(entries));
            let given = Arc::clone(&entries);
            let done = spawn_blocking(move || logs.append_now(&at, &given)).await;
            done.unwrap_or_else(|panic| Err(io::Error::other(panic)))
                .map_err(|source| Rejected {
                    error: log_error("append to", key, source),
                    entries: Arc::unwrap_or_clone(entries),
                })
        })
    }

    fn read<'a>(
        &'a self,
        key: &'a PhaseKey,
        from: u64,
        max_bytes: usize,
    ) -> BoxFuture<'a, Result<Page, LogError>> {
        Box::pin(self.blocking(key, "read", move |logs, key| {
            logs.read_now(key, from.max(1), max_bytes)
        }))
    }

    fn follow<'a>(
        &'a self,
        key: &'a PhaseKey,
    ) -> BoxFuture<'a, Result<watch::Receiver<Tail>, LogError>> {
        Box::pin(self.blocking(key, "follow", |logs, key| logs.follow_now(key)))
    }

    fn recover<'a>(
        &'a self,
        key: &'a PhaseKey,
        now_ms: i64,
    ) -> BoxFuture<'a, Result<Tail, LogError>> {
        Box::pin(self.blocking(key, "end", move |logs, key| logs.recover_now(key, now_ms)))
    }

    fn remove<'a>(&'a self, key: &'a PhaseKey) -> BoxFuture<'a, Result<u64, LogError>> {
        Box::pin(self.blocking(key, "remove", |logs, key| logs.remove_now(key)))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<(PhaseKey, u64)>, io::Error>> {
        let root = self.root.clone();
        Box::pin(async move {
            let listed = spawn_blocking(move || list_now(&root)).await;
            listed.unwrap_or_else(|panic| Err(io::Error::other(panic)))
        })
    }
}

fn list_now(root: &Path) -> io::Result<Vec<(PhaseKey, u64)>> {
    let mut found = Vec::new();
    for run in fs::read_dir(root)? {
        let run = run?;
        if !run.file_type()?.is_dir() {
            continue;
        }
        for log in fs::read_dir(run.path())? {
            let log = log?;
            if let Some(key) = key_of(&run.file_name(), &log.file_name()) {
                found.push((key, log.metadata()?.len()));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn key_of(run: &std::ffi::OsStr, log: &std::ffi::OsStr) -> Option<PhaseKey> {
    let (phase, attempt) = log.to_str()?.strip_suffix(".log")?.rsplit_once('.')?;
    Some(PhaseKey {
        run: run.to_str()?.parse().ok()?,
        phase: phase.parse().ok()?,
        attempt: attempt.parse().ok()?,
    })
}

pub(crate) fn end_entry(how: LogEnd, now_ms: i64) -> NewEntry {
    NewEntry {
        at_ms: now_ms,
        stream: bulkhead_model::Stream::System,
        body: Body::Marker(Marker::End { how }),
    }
}

fn log_error(doing: &'static str, key: &PhaseKey, source: io::Error) -> LogError {
    let key = key.clone();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            LogError::DiskFull { key, source }
        }
        io::ErrorKind::NotFound => LogError::NotFound { key },
        _ => LogError::File { doing, key, source },
    }
}

const fn tail(file: &LogFile) -> Tail {
    Tail {
        next_seq: file.next_seq(),
        sealed: file.is_sealed(),
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A log is changed in steps that leave it whole, so it is as good after a panic as before.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn make_private(path: &Path) -> io::Result<()> {
    std::os::unix::fs::DirBuilderExt::mode(fs::DirBuilder::new().recursive(true), 0o700)
        .create(path)
}
