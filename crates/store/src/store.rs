//! The store as a whole: opened once, cloned freely.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use tokio::sync::{Notify, watch};

use crate::{
    db::{Connection, Db},
    dir::{Access, DataDir},
    error::{Doing, Error, Result, file},
    leases,
    phase::Held,
    secrets::{Keyring, MasterKey},
};

/// Everything that Bulkhead remembers, except log lines (see [`crate::logs`]) and repositories.
///
/// Times are handed in as milliseconds since the epoch: the store has no clock, so that a test decides
/// what time it is.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    db: Db,
    dir: DataDir,
    /// Rung after each commit that put something into the outbox.
    doorbell: Notify,
    /// Counts commits, for whoever shows what changes.
    changes: watch::Sender<u64>,
    /// Counts what may have ended a lease, so that a check need not be repeated while nothing has.
    lease_moves: AtomicU64,
    keyring: Keyring,
}

impl Store {
    /// Opens or makes the data directory and brings its database to this version.
    pub async fn open(root: &Path, access: Access, master: MasterKey) -> Result<Self> {
        let root = root.to_owned();
        let mut dir = tokio::task::spawn_blocking(move || DataDir::open(&root, access))
            .await
            .expect("opening the data directory does not panic")?;
        let db = Db::open(&dir).await?;
        let keyring = Keyring::open(&dir, &db, master).await?;
        if access == Access::Tool {
            dir.unlock();
        }
        Ok(Self {
            inner: Arc::new(Inner {
                db,
                dir,
                doorbell: Notify::new(),
                changes: watch::Sender::new(0),
                lease_moves: AtomicU64::new(0),
                keyring,
            }),
        })
    }

    pub fn dir(&self) -> &DataDir {
        &self.inner.dir
    }

    /// Changes with every commit that people may want to see (runs, events, logs' ends): whoever shows
    /// them waits here and reads again from where it was.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Ends all use of the database; what was committed is on disk.
    pub async fn close(&self) {
        self.inner.db.close().await;
    }

    /// Writes a whole and consistent copy of the database to a new file while work goes on. The copy
    /// holds secrets in sealed form only: it is useless without the master key, which is not in it.
    pub async fn backup(&self, to: &Path) -> Result<()> {
        let target = to.to_str().ok_or_else(|| Error::NotFound {
            kind: "path in UTF-8",
            name: to.display().to_string(),
        })?;
        // Made first, so that the copy is private from its first byte; an old backup is never replaced.
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .private()
            .open(to)
            .map_err(file("make the backup", to))?;
        sqlx::query(self.db().dialect.backup())
            .bind(target)
            .execute(self.db().write())
            .await
            .doing("writing a backup")?;
        Ok(())
    }

    pub(crate) fn db(&self) -> &Db {
        &self.inner.db
    }

    /// Tells the outbox's worker and all who watch that something was committed.
    pub(crate) fn committed(&self) {
        self.inner.doorbell.notify_one();
        self.inner.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn lease_moves(&self) -> &AtomicU64 {
        &self.inner.lease_moves
    }

    pub(crate) fn doorbell(&self) -> &Notify {
        &self.inner.doorbell
    }

    pub(crate) fn keyring(&self) -> &Keyring {
        &self.inner.keyring
    }
}

/// Refuses a stale holder inside the caller's transaction, so that nobody can take the lease between
/// the check and the write.
pub(crate) async fn require_held(tx: &mut Connection, held: &Held, now_ms: i64) -> Result<()> {
    leases::require(tx, &leases::Resource::run(held.key.run), held.fence, now_ms).await
}

trait Private {
    fn private(&mut self) -> &mut Self;
}

impl Private for std::fs::OpenOptions {
    fn private(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::mode(self, 0o600)
    }
}
