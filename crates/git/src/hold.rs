//! This process's hold on a repository: one lock for changes, and for a mirror the lock file that keeps other
//! processes out.
//!
//! A file lock belongs to the process, so the table of holds does too: two runs on one repository share one hold,
//! whoever opened it first.

use std::{
    collections::HashMap,
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
    time::Duration,
};

use crate::error::{Error, Result};

static HOLDS: LazyLock<Mutex<HashMap<PathBuf, Weak<Hold>>>> = LazyLock::new(Mutex::default);
/// How long another process's hold is waited for: a server that stops, or an embedded run that ends.
const TRIES: usize = 300;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Hold {
    /// Held by whoever changes the repository.
    pub(crate) change: tokio::sync::Mutex<()>,
    file: Option<File>,
}

impl Hold {
    /// The lock for a command that must keep it while it lives. It is one lock with ours, however many hold it.
    pub(crate) fn lock(&self) -> Result<Option<File>> {
        let lock = self.file.as_ref().map(File::try_clone).transpose();
        lock.map_err(Error::io("share a mirror's lock"))
    }
}

/// Whether a hold was there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Already,
    First,
}

/// The hold on a repository that other programs use too, such as a user's own: nobody is kept out.
pub(crate) fn shared(key: &Path) -> Arc<Hold> {
    let mut holds = HOLDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hold) = holds.get(key).and_then(Weak::upgrade) {
        return hold;
    }
    keep(&mut holds, key, None)
}

/// The hold on a directory of Bulkhead's own, by a lock file.
pub(crate) async fn exclusive(key: &Path, lock: &Path) -> Result<(Arc<Hold>, Held)> {
    let doing = || format!("lock {}", lock.display());
    let mut file = File::create(lock).map_err(Error::io(doing()))?;
    for _ in 0..TRIES {
        match attempt(key, file) {
            Ok(held) => return Ok(held),
            Err((_, TryLockError::Error(error))) => return Err(Error::io(doing())(error)),
            Err((back, TryLockError::WouldBlock)) => file = back,
        }
        tokio::time::sleep(PAUSE).await;
    }
    let why = "another Bulkhead process holds it: stop that process, or use another data directory";
    Err(Error::io(doing())(io::Error::new(
        io::ErrorKind::WouldBlock,
        why,
    )))
}

fn attempt(key: &Path, file: File) -> Result<(Arc<Hold>, Held), (File, TryLockError)> {
    let mut holds = HOLDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hold) = holds.get(key).and_then(Weak::upgrade) {
        return Ok((hold, Held::Already));
    }
    match file.try_lock() {
        Ok(()) => Ok((keep(&mut holds, key, Some(file)), Held::First)),
        Err(error) => Err((file, error)),
    }
}

fn keep(holds: &mut HashMap<PathBuf, Weak<Hold>>, key: &Path, file: Option<File>) -> Arc<Hold> {
    holds.retain(|_, hold| hold.strong_count() > 0);
    let hold = Arc::new(Hold {
        change: tokio::sync::Mutex::new(()),
        file,
    });
    holds.insert(key.to_owned(), Arc::downgrade(&hold));
    hold
}
