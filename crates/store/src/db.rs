//! The database itself: pools, the shape's history, and the few statements that differ by database.
//!
//! All writes go through one connection whose transactions take the write lock at once, so a write
//! never fails half-way because another got in between. Reads have a pool of their own and, thanks to
//! the write-ahead log, never wait for a write.

use std::{path::Path, time::Duration};

use sqlx::{
    Pool, SqlSafeStr, Sqlite, SqliteConnection, SqlitePool, Transaction,
    migrate::{Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{
    dir::DataDir,
    error::{Doing, Error, Result},
};

pub(crate) type Connection = SqliteConnection;
pub(crate) type Tx = Transaction<'static, Sqlite>;

const READERS: u32 = 4;
/// Only a tool beside the server ever makes the writer wait, and its transactions are short.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The database's history. A row is never edited after a release: its hash is checked at each start.
const MIGRATIONS: &[(i64, &str, &str)] =
    &[(1, "start", include_str!("../migrations/0001_start.sql"))];

/// What differs between databases. Today there is one; the second gets its arm here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
}

impl Dialect {
    /// How a transaction begins that will write.
    pub(crate) const fn begin_write(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
        }
    }

    /// Takes up to `$4` effects that are due at `$1`, the first of their runs, until `$2`, under claim
    /// `$3`. A database with many
    /// writers must skip rows that another has locked; SQLite has one writer.
    pub(crate) const fn claim_effects(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "UPDATE outbox SET claim = $3, claimed_until = $2, attempts = attempts + 1 \
                 WHERE seq IN (SELECT o.seq FROM outbox o \
                 WHERE o.done_at IS NULL AND o.given_up_at IS NULL \
                 AND o.next_at <= $1 AND o.claimed_until <= $1 \
                 AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.run_id = o.run_id AND e.seq < o.seq \
                                 AND e.done_at IS NULL AND e.given_up_at IS NULL) \
                 ORDER BY o.seq LIMIT $4) \
                 RETURNING seq, payload, attempts"
            }
        }
    }

    /// Writes a copy of the whole database to the file `$1`.
    pub(crate) const fn backup(self) -> &'static str {
        match self {
            Self::Sqlite => "VACUUM INTO $1",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Db {
    pub(crate) dialect: Dialect,
    writer: SqlitePool,
    reader: SqlitePool,
}

impl Db {
    pub(crate) async fn open(dir: &DataDir) -> Result<Self> {
        let path = dir.database();
        // Made here, so that it is private from its first byte; the log beside it takes its mode.
        crate::dir::private_file(&path)?;
        let writer = pool(&path, 1, options(&path)).await?;
        migrate(&writer, dir).await?;
        let reader = pool(&path, READERS, options(&path).pragma("query_only", "ON")).await?;
        Ok(Self {
            dialect: Dialect::Sqlite,
            writer,
            reader,
        })
    }

    /// For reads: sees the last commit, never blocks a write.
    pub(crate) fn read(&self) -> &Pool<Sqlite> {
        &self.reader
    }

    /// For single statements that write.
    pub(crate) fn write(&self) -> &Pool<Sqlite> {
        &self.writer
    }

    pub(crate) async fn begin(&self) -> Result<Tx> {
        self.writer
            .begin_with(self.dialect.begin_write())
            .await
            .doing("beginning a transaction")
    }

    pub(crate) async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        // A commit that was answered must survive a power cut, not only a crash of this process.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        // Deleted secrets and tokens are overwritten, not left in free pages.
        .pragma("secure_delete", "ON")
}

async fn pool(path: &Path, size: u32, options: SqliteConnectOptions) -> Result<SqlitePool> {
    tracing::debug!(path = %path.display(), size, "opening the database");
    SqlitePoolOptions::new()
        .min_connections(1)
        .max_connections(size)
        .acquire_timeout(Duration::from_secs(30))
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(options)
        .await
        .doing("opening the database")
}

fn migrator() -> Migrator {
    let steps = MIGRATIONS.iter().map(|&(version, name, sql)| {
        Migration::new(
            version,
            name.into(),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    });
    Migrator::with_migrations(steps.collect())
}

/// Brings the database forward. Only the holder of the directory's lock changes its shape; a tool
/// beside a server of another version is refused instead.
async fn migrate(writer: &SqlitePool, dir: &DataDir) -> Result<()> {
    if dir.is_locked() {
        return migrator().run(writer).await.map_err(Error::Migration);
    }
    let newest: Option<i64> = sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations")
        .fetch_one(writer)
        .await
        .doing("reading the database's version")?;
    if newest == MIGRATIONS.last().map(|step| step.0) {
        return Ok(());
    }
    Err(Error::InUse {
        path: dir.root().to_owned(),
    })
}
