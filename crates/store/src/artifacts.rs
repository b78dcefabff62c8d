//! Artifacts: named files that a phase hands on, kept once per content.
//!
//! A file is written beside its place under a temporary name, hashed on the way, and moved to the name
//! of its hash in the transaction that writes its row. Garbage collection deletes files in transactions
//! of the same single writer, so it can never take one whose row is just being written.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use bulkhead_model::{ArtifactName, RunId};
use tokio::{fs, io::AsyncWriteExt as _};
use uuid::Uuid;

use crate::{
    dir::DataDir,
    error::{Doing, Error, Result, corrupt, file},
    phase::{Held, PhaseKey},
    store::{Store, require_held},
    tokens::hex,
};

/// The largest artifact unless told otherwise.
pub const DEFAULT_MAX_ARTIFACT_BYTES: u64 = 1 << 30;

/// A kept artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    pub name: ArtifactName,
    /// The attempt that made it.
    pub key: PhaseKey,
    /// Hex.
    pub sha256: String,
    pub size_bytes: u64,
    pub created_at_ms: i64,
    /// Where its content lies; read-only for everybody.
    pub path: PathBuf,
}

/// An artifact on its way in. Dropped before [`ArtifactWriter::finish`], it leaves nothing.
pub struct ArtifactWriter {
    store: Store,
    temporary: Temporary,
    target: fs::File,
    hash: digest::Context,
    size: u64,
    max: u64,
}

impl Store {
    /// Begins an artifact of at most `max` bytes.
    pub async fn new_artifact(&self, max: u64) -> Result<ArtifactWriter> {
        let path = self
            .dir()
            .artifacts()
            .join(format!("{TEMPORARY}{}", Uuid::now_v7()));
        let target = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .await
            .map_err(file("make", &path))?;
        Ok(ArtifactWriter {
            store: self.clone(),
            temporary: Temporary(path),
            target,
            hash: digest::Context::new(&digest::SHA256),
            size: 0,
            max,
        })
    }

    pub async fn artifact(&self, run: RunId, name: &ArtifactName) -> Result<Artifact> {
        let found = self.artifacts(run).await?;
        found
            .into_iter()
            .find(|artifact| artifact.name == *name)
            .ok_or_else(|| Error::NotFound {
                kind: "artifact",
                name: name.to_string(),
            })
    }

    /// The artifacts of a run by name.
    pub async fn artifacts(&self, run: RunId) -> Result<Vec<Artifact>> {
        let rows: Vec<(String, String, String, i64, String, i64, i64)> = sqlx::query_as(
            "SELECT run_id, name, phase, attempt, sha256, size_bytes, created_at FROM artifacts \
             WHERE run_id = $1 ORDER BY name LIMIT 10000",
        )
        .bind(run.to_string())
        .fetch_all(self.db().read())
        .await
        .doing("reading artifacts")?;
        rows.into_iter()
            .map(
                |(run, name, phase, attempt, sha256, size_bytes, created_at_ms)| {
                    Ok(Artifact {
                        name: name.parse().map_err(corrupt("an artifact's name"))?,
                        key: PhaseKey::from_row(&run, &phase, attempt)?,
                        path: content_path(self.dir(), &sha256),
                        sha256,
                        size_bytes: size_bytes as u64,
                        created_at_ms,
                    })
                },
            )
            .collect()
    }
}

impl std::fmt::Debug for ArtifactWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArtifactWriter")
            .field("path", &self.temporary.0)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl ArtifactWriter {
    /// Adds bytes; refuses the first that is too many.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let size = self.size + bytes.len() as u64;
        if size > self.max {
            return Err(Error::TooLarge {
                what: "the artifact",
                size,
                max: self.max,
            });
        }
        self.target
            .write_all(bytes)
            .await
            .map_err(file("write", &self.temporary.0))?;
        self.hash.update(bytes);
        self.size = size;
        Ok(())
    }

    /// Keeps the artifact under its name, in place of what an earlier attempt handed on.
    pub async fn finish(
        mut self,
        held: &Held,
        name: &ArtifactName,
        now_ms: i64,
    ) -> Result<Artifact> {
        let path = &self.temporary.0;
        self.target.flush().await.map_err(file("write", path))?;
        self.target.sync_all().await.map_err(file("write", path))?;
        let sha256 = hex(self.hash.clone().finish().as_ref());
        let place = content_path(self.store.dir(), &sha256);
        let mut tx = self.store.db().begin().await?;
        require_held(&mut tx, held, now_ms).await?;
        fs::rename(path, &place)
            .await
            .map_err(file("put into place", &place))?;
        sqlx::query(
            "INSERT INTO artifacts (run_id, name, phase, attempt, sha256, size_bytes, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) \
             ON CONFLICT (run_id, name) DO UPDATE SET phase = excluded.phase, \
             attempt = excluded.attempt, sha256 = excluded.sha256, \
             size_bytes = excluded.size_bytes, created_at = excluded.created_at",
        )
        .bind(held.key.run.to_string())
        .bind(name.as_str())
        .bind(held.key.phase.as_str())
        .bind(i64::from(held.key.attempt))
        .bind(&sha256)
        .bind(self.size as i64)
        .bind(now_ms)
        .execute(&mut *tx)
        .await
        .doing("keeping an artifact")?;
        tx.commit().await.doing("keeping an artifact")?;
        self.store.committed();
        Ok(Artifact {
            name: name.clone(),
            key: held.key.clone(),
            sha256,
            size_bytes: self.size,
            created_at_ms: now_ms,
            path: place,
        })
    }
}

/// How the names of unfinished files begin.
pub(crate) const TEMPORARY: &str = "tmp-";

/// A file that goes when this is dropped, unless it was moved away.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Most often it was moved to its place and is not here any more.
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn content_path(dir: &DataDir, sha256: &str) -> PathBuf {
    dir.artifacts().join(Path::new(sha256))
}
