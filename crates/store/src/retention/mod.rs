//! What goes, when, and what stays: garbage collection that says exactly what it did (R19, case 48).
//!
//! Only runs that have ended can go, with everything that belongs to them: state, moves, decisions,
//! effects, pushes, events, tokens, lease, notes, logs, artifacts. Rows go first, in one transaction per run; a
//! crash before the files went leaves files without rows, which the comparison below finds (case 25).

mod orphans;

use std::collections::{BTreeMap, HashMap, HashSet};

use bulkhead_model::RunId;

pub use orphans::{Mend, Orphan};

use crate::{
    db::Connection,
    error::{Doing, Result, corrupt},
    logs::LogStore,
    phase::PhaseKey,
    store::Store,
};

/// How long tokens that are no longer good are shown.
const DEAD_TOKEN_MS: i64 = 30 * DAY_MS;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What ended runs may use. None is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Since the run's end.
    pub max_age_ms: Option<i64>,
    pub max_runs: Option<u64>,
    /// Logs and artifacts together, as their sizes are.
    pub max_bytes: Option<u64>,
    /// Since the run's end; the run itself stays.
    pub max_log_age_ms: Option<i64>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_age_ms: None,
            max_runs: None,
            max_bytes: Some(20 << 30),
            max_log_age_ms: Some(30 * DAY_MS),
        }
    }
}

/// Which part of the policy asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Age,
    Count,
    Bytes,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Age => "older than the policy's age",
            Self::Count => "more runs than the policy keeps",
            Self::Bytes => "more bytes than the policy keeps",
        })
    }
}

/// A run that is gone, with what went with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    pub run: RunId,
    pub reason: Reason,
    pub events: u64,
    pub tokens: u64,
    pub logs: u64,
    pub log_bytes: u64,
    pub artifacts: u64,
    /// Of files that no other run shares.
    pub artifact_bytes: u64,
}

/// A log that is gone while its run stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedLog {
    pub key: PhaseKey,
    pub bytes: u64,
}

/// Why a run that the policy would let go is still here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// An effect of it is still to be performed.
    Effects,
    /// Nobody knows yet how a push of it ended.
    Push,
    /// Somebody holds its lease.
    Lease,
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Effects => "an effect of it is still to be performed",
            Self::Push => "a push of it is not settled",
            Self::Lease => "somebody holds its lease",
        })
    }
}

/// What a collection did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub removed: Vec<Removed>,
    pub kept: Vec<(RunId, Kept)>,
    /// Logs that went though their runs stay.
    pub logs: Vec<RemovedLog>,
    /// Runs that have not ended; they are never touched.
    pub live: u64,
    /// Ended runs that the policy keeps.
    pub within_policy: u64,
    /// Callers' tokens that were expired or revoked for a month.
    pub api_tokens: u64,
    /// What had lost its counterpart, and was removed.
    pub orphans: Vec<Orphan>,
}

/// An ended run as the policy sees it.
#[derive(Debug)]
struct Ended {
    run: RunId,
    ended_at_ms: i64,
    bytes: u64,
}

impl Store {
    /// Removes what the policy does not keep, and every orphan; or only says what it would remove.
    pub async fn gc(
        &self,
        logs: &dyn LogStore,
        policy: &Policy,
        mend: Mend,
        now_ms: i64,
    ) -> Result<Report> {
        let sizes = self.log_sizes(logs).await?;
        let ended = self.ended_runs(&sizes).await?;
        let mut report = Report {
            live: self.count_live().await?,
            within_policy: ended.len() as u64,
            ..Report::default()
        };
        let due = due(&ended, policy, now_ms);
        for &(run, reason) in &due {
            report.within_policy -= 1;
            let collection = Collection { logs, mend, now_ms };
            match self.collect_run(&collection, &sizes, run, reason).await? {
                Ok(removed) => report.removed.push(removed),
                Err(kept) => report.kept.push((run, kept)),
            }
        }
        let due: HashSet<RunId> = due.into_iter().map(|(run, _)| run).collect();
        let old: HashSet<RunId> = ended
            .iter()
            .filter(|run| {
                policy
                    .max_log_age_ms
                    .is_some_and(|max| now_ms - run.ended_at_ms > max)
            })
            .map(|run| run.run)
            .collect();
        let stale = |key: &PhaseKey| old.contains(&key.run) && !due.contains(&key.run);
        for (key, bytes) in sizes.iter().filter(|(key, _)| stale(key)) {
            self.collect_log(logs, mend, key).await?;
            report.logs.push(RemovedLog {
                key: key.clone(),
                bytes: *bytes,
            });
        }
        report.api_tokens = self.remove_dead_tokens(mend, now_ms).await?;
        report.orphans = self.compare(logs, mend, now_ms).await?;
        Ok(report)
    }

    async fn collect_run(
        &self,
        collection: &Collection<'_>,
        sizes: &LogSizes,
        run: RunId,
        reason: Reason,
    ) -> Result<Result<Removed, Kept>> {
        let mut tx = self.db().begin().await?;
        if let Some(kept) = why_kept(&mut tx, run, collection.now_ms).await? {
            return Ok(Err(kept));
        }
        let keys = log_keys(&mut tx, run).await?;
        let contents = contents(&mut tx, run).await?;
        let unshared = contents.iter().filter(|content| !content.shared);
        let removed = Removed {
            run,
            reason,
            events: count(
                &mut tx,
                "SELECT count(*) FROM events WHERE run_id = $1",
                run,
            )
            .await?,
            tokens: count(
                &mut tx,
                "SELECT count(*) FROM phase_tokens WHERE run_id = $1",
                run,
            )
            .await?,
            logs: keys.len() as u64,
            log_bytes: keys.iter().filter_map(|key| sizes.get(key)).sum(),
            artifacts: count(
                &mut tx,
                "SELECT count(*) FROM artifacts WHERE run_id = $1",
                run,
            )
            .await?,
            artifact_bytes: unshared.map(|content| content.bytes).sum(),
        };
        if collection.mend == Mend::Report {
            return Ok(Ok(removed));
        }
        delete_run(&mut tx, run).await?;
        tx.commit().await.doing("removing a run")?;
        for key in keys {
            remove_log(collection.logs, &key).await;
        }
        for content in contents {
            self.remove_content(&content.sha256).await?;
        }
        self.committed();
        Ok(Ok(removed))
    }

    /// The row goes first: a file without one is an orphan, which the next collection finds.
    async fn collect_log(&self, logs: &dyn LogStore, mend: Mend, key: &PhaseKey) -> Result<()> {
        if mend == Mend::Report {
            return Ok(());
        }
        sqlx::query("DELETE FROM logs WHERE run_id = $1 AND phase = $2 AND attempt = $3")
            .bind(key.run.to_string())
            .bind(key.phase.as_str())
            .bind(i64::from(key.attempt))
            .execute(self.db().write())
            .await
            .doing("removing a log")?;
        remove_log(logs, key).await;
        Ok(())
    }

    async fn log_sizes(&self, logs: &dyn LogStore) -> Result<LogSizes> {
        let listed = logs.list().await;
        let listed = listed.map_err(crate::error::file("list", self.dir().logs()))?;
        Ok(listed.into_iter().collect())
    }

    /// Ended runs, the one that ended last first.
    async fn ended_runs(&self, sizes: &LogSizes) -> Result<Vec<Ended>> {
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(
            "SELECT r.id, r.ended_at, COALESCE((SELECT sum(a.size_bytes) FROM artifacts a \
             WHERE a.run_id = r.id), 0) FROM runs r WHERE r.ended_at IS NOT NULL \
             ORDER BY r.ended_at DESC, r.id DESC",
        )
        .fetch_all(self.db().read())
        .await
        .doing("reading which runs have ended")?;
        let mut by_run: HashMap<RunId, u64> = HashMap::new();
        for (key, bytes) in sizes {
            *by_run.entry(key.run).or_default() += bytes;
        }
        rows.into_iter()
            .map(|(run, ended_at_ms, artifact_bytes)| {
                let run = run.parse().map_err(corrupt("a run's id"))?;
                let log_bytes = by_run.get(&run).copied().unwrap_or(0);
                Ok(Ended {
                    run,
                    ended_at_ms,
                    bytes: artifact_bytes as u64 + log_bytes,
                })
            })
            .collect()
    }

    async fn count_live(&self) -> Result<u64> {
        let live: i64 = sqlx::query_scalar("SELECT count(*) FROM runs WHERE ended_at IS NULL")
            .fetch_one(self.db().read())
            .await
            .doing("counting the runs that live")?;
        Ok(live as u64)
    }

    async fn remove_dead_tokens(&self, mend: Mend, now_ms: i64) -> Result<u64> {
        if mend == Mend::Report {
            let dead: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM api_tokens WHERE revoked_at < $1 OR expires_at < $1",
            )
            .bind(now_ms - DEAD_TOKEN_MS)
            .fetch_one(self.db().read())
            .await
            .doing("counting dead tokens")?;
            return Ok(dead as u64);
        }
        let removed =
            sqlx::query("DELETE FROM api_tokens WHERE revoked_at < $1 OR expires_at < $1")
                .bind(now_ms - DEAD_TOKEN_MS)
                .execute(self.db().write())
                .await
                .doing("removing dead tokens")?;
        Ok(removed.rows_affected())
    }
}

type LogSizes = BTreeMap<PhaseKey, u64>;

/// With what a collection works.
struct Collection<'a> {
    logs: &'a dyn LogStore,
    mend: Mend,
    now_ms: i64,
}

/// The runs that the policy does not keep, the one that ended first first.
fn due(ended: &[Ended], policy: &Policy, now_ms: i64) -> Vec<(RunId, Reason)> {
    let mut bytes = 0_u64;
    let mut due = Vec::new();
    for (place, run) in (1_u64..).zip(ended) {
        bytes = bytes.saturating_add(run.bytes);
        let age = now_ms - run.ended_at_ms;
        let reason = if policy.max_age_ms.is_some_and(|max| age > max) {
            Reason::Age
        } else if policy.max_runs.is_some_and(|max| place > max) {
            Reason::Count
        } else if policy.max_bytes.is_some_and(|max| bytes > max) {
            Reason::Bytes
        } else {
            continue;
        };
        due.push((run.run, reason));
    }
    due.reverse();
    due
}

async fn why_kept(tx: &mut Connection, run: RunId, now_ms: i64) -> Result<Option<Kept>> {
    let effects = "SELECT count(*) FROM outbox WHERE run_id = $1 AND done_at IS NULL \
                   AND given_up_at IS NULL";
    let pushes = "SELECT count(*) FROM pushes WHERE run_id = $1 AND state = 'recorded'";
    if count(tx, effects, run).await? > 0 {
        return Ok(Some(Kept::Effects));
    }
    if count(tx, pushes, run).await? > 0 {
        return Ok(Some(Kept::Push));
    }
    let until: Option<i64> =
        sqlx::query_scalar("SELECT expires_at FROM leases WHERE resource = 'run/' || $1")
            .bind(run.to_string())
            .fetch_optional(tx)
            .await
            .doing("looking whether a run is held")?;
    Ok(until.filter(|until| *until > now_ms).map(|_| Kept::Lease))
}

async fn count(tx: &mut Connection, statement: &'static str, run: RunId) -> Result<u64> {
    let count: i64 = sqlx::query_scalar(statement)
        .bind(run.to_string())
        .fetch_one(tx)
        .await
        .doing("counting what belongs to a run")?;
    Ok(count as u64)
}

async fn log_keys(tx: &mut Connection, run: RunId) -> Result<Vec<PhaseKey>> {
    let rows: Vec<(String, String, i64)> =
        sqlx::query_as("SELECT run_id, phase, attempt FROM logs WHERE run_id = $1")
            .bind(run.to_string())
            .fetch_all(tx)
            .await
            .doing("reading a run's logs")?;
    rows.into_iter()
        .map(|(run, phase, attempt)| PhaseKey::from_row(&run, &phase, attempt))
        .collect()
}

/// One content that a run names.
struct Content {
    sha256: String,
    bytes: u64,
    /// Another run names it too.
    shared: bool,
}

async fn contents(tx: &mut Connection, run: RunId) -> Result<Vec<Content>> {
    let rows: Vec<(String, i64, i64)> = sqlx::query_as(
        "SELECT sha256, max(size_bytes), (SELECT count(*) FROM artifacts o \
         WHERE o.sha256 = a.sha256 AND o.run_id <> $1) FROM artifacts a \
         WHERE run_id = $1 GROUP BY sha256",
    )
    .bind(run.to_string())
    .fetch_all(tx)
    .await
    .doing("reading a run's artifacts")?;
    Ok(rows
        .into_iter()
        .map(|(sha256, bytes, others)| Content {
            sha256,
            bytes: bytes as u64,
            shared: others > 0,
        })
        .collect())
}

async fn delete_run(tx: &mut Connection, run: RunId) -> Result<()> {
    for statement in [
        "DELETE FROM runs WHERE id = $1",
        "DELETE FROM leases WHERE resource = 'run/' || $1",
        // What is noted of a run stands under `<kind>/<run>/<what>`.
        "DELETE FROM settings WHERE name LIKE '%/' || $1 || '/%'",
    ] {
        sqlx::query(statement)
            .bind(run.to_string())
            .execute(&mut *tx)
            .await
            .doing("removing a run")?;
    }
    Ok(())
}

/// A log that cannot be removed now is an orphan from here on.
async fn remove_log(logs: &dyn LogStore, key: &PhaseKey) {
    if let Err(error) = logs.remove(key).await {
        tracing::warn!(log = %key, %error, "could not remove a log yet");
    }
}
