//! Rows and files that have lost their counterpart (case 25).

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::fs;

use super::remove_log;
use crate::{
    artifacts::{TEMPORARY, content_path},
    error::{Doing, Result, file},
    logs::LogStore,
    phase::PhaseKey,
    store::Store,
};

/// An unfinished file is left alone for so long: it may be on its way in.
const UNFINISHED: Duration = Duration::from_secs(60 * 60);

/// Whether orphans are only reported, or removed too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mend {
    Report,
    Remove,
}

/// One orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Orphan {
    /// A log's file without its row.
    LogFile { key: PhaseKey, bytes: u64 },
    /// A log's row without its file.
    LogRow { key: PhaseKey },
    /// An artifact's content that no run names.
    Content { sha256: String, bytes: u64 },
    /// An artifact that a run names, but whose content is gone.
    ArtifactRow { key: PhaseKey, name: String },
    /// A file that was never finished.
    Unfinished { path: PathBuf, bytes: u64 },
}

impl std::fmt::Display for Orphan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LogFile { key, bytes } => {
                write!(f, "log file of {key} ({bytes} bytes) without a row")
            }
            Self::LogRow { key } => write!(f, "row of the log of {key} without a file"),
            Self::Content { sha256, bytes } => {
                write!(
                    f,
                    "artifact content {sha256} ({bytes} bytes) that no run names"
                )
            }
            Self::ArtifactRow { key, name } => {
                write!(f, "artifact {name} of {key} without content")
            }
            Self::Unfinished { path, bytes } => {
                write!(f, "unfinished file {} ({bytes} bytes)", path.display())
            }
        }
    }
}

impl Store {
    /// Compares rows and files, at a start and in each collection. A row without content is reported and
    /// stays: that something is missing must be seen.
    pub async fn compare(
        &self,
        logs: &dyn LogStore,
        mend: Mend,
        now_ms: i64,
    ) -> Result<Vec<Orphan>> {
        let mut orphans = self.compare_logs(logs, mend).await?;
        orphans.extend(self.compare_artifacts(mend, now_ms).await?);
        Ok(orphans)
    }

    async fn compare_logs(&self, logs: &dyn LogStore, mend: Mend) -> Result<Vec<Orphan>> {
        // Files first: a row is written before its file, so a file of now has its row by then.
        let files = logs.list().await.map_err(file("list", self.dir().logs()))?;
        let rows: HashSet<PhaseKey> = self.log_rows().await?.into_iter().collect();
        let mut orphans = Vec::new();
        for (key, bytes) in &files {
            if rows.contains(key) {
                continue;
            }
            if mend == Mend::Remove {
                remove_log(logs, key).await;
            }
            orphans.push(Orphan::LogFile {
                key: key.clone(),
                bytes: *bytes,
            });
        }
        let files: HashSet<&PhaseKey> = files.iter().map(|(key, _)| key).collect();
        // A log that is only just being made has a row and no file yet.
        let sealed = self.sealed_log_rows().await?;
        let lost = sealed.into_iter().filter(|key| !files.contains(key));
        orphans.extend(lost.map(|key| Orphan::LogRow { key }));
        Ok(orphans)
    }

    async fn log_rows(&self) -> Result<Vec<PhaseKey>> {
        self.keys("SELECT run_id, phase, attempt FROM logs").await
    }

    async fn sealed_log_rows(&self) -> Result<Vec<PhaseKey>> {
        self.keys("SELECT run_id, phase, attempt FROM logs WHERE sealed_at IS NOT NULL")
            .await
    }

    async fn keys(&self, statement: &'static str) -> Result<Vec<PhaseKey>> {
        let rows: Vec<(String, String, i64)> = sqlx::query_as(statement)
            .fetch_all(self.db().read())
            .await
            .doing("reading which logs there are")?;
        rows.into_iter()
            .map(|(run, phase, attempt)| PhaseKey::from_row(&run, &phase, attempt))
            .collect()
    }

    async fn compare_artifacts(&self, mend: Mend, now_ms: i64) -> Result<Vec<Orphan>> {
        let mut orphans = Vec::new();
        let root = self.dir().artifacts();
        let mut present = HashSet::new();
        let mut listing = fs::read_dir(&root).await.map_err(file("list", &root))?;
        while let Some(entry) = listing.next_entry().await.map_err(file("list", &root))? {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(TEMPORARY) {
                orphans.extend(unfinished(entry.path(), mend, now_ms).await);
            } else {
                present.insert(name);
            }
        }
        let rows: Vec<(String, String, i64, String, String)> =
            sqlx::query_as("SELECT run_id, phase, attempt, name, sha256 FROM artifacts")
                .fetch_all(self.db().read())
                .await
                .doing("reading which artifacts there are")?;
        let named: HashSet<&str> = rows.iter().map(|row| row.4.as_str()).collect();
        for sha256 in present
            .iter()
            .filter(|sha256| !named.contains(sha256.as_str()))
        {
            orphans.extend(self.orphaned_content(sha256, mend).await?);
        }
        for (run, phase, attempt, name, sha256) in &rows {
            if !present.contains(sha256) && !content_path(self.dir(), sha256).exists() {
                orphans.push(Orphan::ArtifactRow {
                    key: PhaseKey::from_row(run, phase, *attempt)?,
                    name: name.clone(),
                });
            }
        }
        Ok(orphans)
    }

    async fn orphaned_content(&self, sha256: &str, mend: Mend) -> Result<Option<Orphan>> {
        let bytes = match mend {
            Mend::Remove => self.remove_content(sha256).await?,
            Mend::Report => size_of(&content_path(self.dir(), sha256)).await,
        };
        Ok(bytes.map(|bytes| Orphan::Content {
            sha256: sha256.to_owned(),
            bytes,
        }))
    }

    /// Deletes a content unless a row names it. Inside a transaction, so that none can come to name it
    /// meanwhile. Returns the bytes that went; none where it is named or not there.
    pub(super) async fn remove_content(&self, sha256: &str) -> Result<Option<u64>> {
        let path = content_path(self.dir(), sha256);
        let mut tx = self.db().begin().await?;
        let named: i64 = sqlx::query_scalar("SELECT count(*) FROM artifacts WHERE sha256 = $1")
            .bind(sha256)
            .fetch_one(&mut *tx)
            .await
            .doing("looking who names an artifact's content")?;
        let bytes = match named {
            0 => size_of(&path).await,
            _ => None,
        };
        if bytes.is_some() {
            fs::remove_file(&path)
                .await
                .map_err(file("remove", &path))?;
        }
        tx.commit().await.doing("removing an artifact's content")?;
        Ok(bytes)
    }
}

async fn unfinished(path: PathBuf, mend: Mend, now_ms: i64) -> Option<Orphan> {
    let meta = fs::metadata(&path).await.ok()?;
    let now = UNIX_EPOCH + Duration::from_millis(u64::try_from(now_ms).ok()?);
    let age = now.duration_since(meta.modified().unwrap_or(SystemTime::UNIX_EPOCH));
    if age.is_ok_and(|age| age < UNFINISHED) {
        return None;
    }
    if mend == Mend::Remove
        && let Err(error) = fs::remove_file(&path).await
    {
        tracing::warn!(path = %path.display(), %error, "could not remove an unfinished file");
    }
    Some(Orphan::Unfinished {
        bytes: meta.len(),
        path,
    })
}

async fn size_of(path: &Path) -> Option<u64> {
    fs::metadata(path).await.ok().map(|meta| meta.len())
}
