//! Runs: the state of each, what moved it, and the effects that follow, always in one transaction (D1).
//!
//! ```text
//!   state at version n ──step(event)──▶ state at version n+1     runs
//!                                  ├──▶ the event, by whom, when  transitions (append-only)
//!                                  ├──▶ effects                   outbox
//!                                  └──▶ an answer at a gate       gate_decisions
//! ```
//!
//! What a run does is the business of `bulkhead_model::run::step`. Here it is only made durable: after
//! a crash either all of these rows are there, or none is.

use bulkhead_model::{
    RunId,
    run::{self, Refused, Run, RunEvent},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    db::{Connection, Tx},
    error::{Doing, Error, Result, corrupt, encode},
    gates, outbox,
    store::Store,
};

/// The largest state or specification of one run, as JSON.
pub const MAX_STATE_BYTES: usize = 4 << 20;

/// A run to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewRun<'a, T> {
    /// For lists: the workflow's name.
    pub name: &'a str,
    /// What it was started with (repository, workflow, inputs): kept as it is, see [`Store::run_spec`].
    pub spec: &'a T,
    pub run: &'a Run,
    pub idempotency: Option<Idempotency<'a>>,
    pub actor: &'a str,
    pub now_ms: i64,
}

/// A caller's promise that two requests are one.
#[derive(Debug, Clone, Copy)]
pub struct Idempotency<'a> {
    pub key: &'a str,
    /// A hash of the whole request: the same key with another request is an error.
    pub request_hash: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    New(RunId),
    /// An earlier request with this key made this run.
    Before(RunId),
}

impl Created {
    pub const fn id(self) -> RunId {
        match self {
            Self::New(id) | Self::Before(id) => id,
        }
    }
}

/// Which version of a run the caller has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever it is now: for events that are true regardless, such as the end of a process.
    Current,
    /// Exactly this one: for what was decided on the run as it was shown.
    Version(u64),
}

/// A move to be made.
#[derive(Debug, Clone, Copy)]
pub struct Move<'a> {
    pub run: RunId,
    pub expected: Expected,
    pub event: &'a RunEvent,
    /// Who caused it, as shown to people: a token's name, `executor`, `timer`.
    pub actor: &'a str,
    pub now_ms: i64,
}

/// A move that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    To(Run),
    /// The event had been worked in before; nothing was changed.
    Repeated(Run),
}

impl Moved {
    pub fn into_run(self) -> Run {
        match self {
            Self::To(run) | Self::Repeated(run) => run,
        }
    }
}

/// One line of the list of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    pub id: RunId,
    pub version: u64,
    pub name: String,
    /// See [`status_word`].
    pub status: String,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
    pub ended_at_ms: Option<i64>,
}

/// Which runs to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    pub status: Option<String>,
    pub only: Option<Life>,
    /// Goes on after this run of the page before.
    pub before: Option<RunId>,
    /// Zero stands for 100; at most 1,000.
    pub limit: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Live,
    Ended,
}

/// One recorded move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The version that the run had after it.
    pub version: u64,
    /// The event as JSON.
    pub event: String,
    pub actor: String,
    pub at_ms: i64,
}

/// Why a move was not made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The run's machine said no.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Store(#[from] Error),
}

/// The word by which runs are listed and filtered: `created`, `running`, `gate`, `paused`, `stopping`,
/// `completed`, `rejected`, `cancelled` or `failed`.
pub fn status_word(run: &Run) -> &'static str {
    use bulkhead_model::run::{End, Status};
    match &run.status {
        Status::Created => "created",
        Status::Running if run.open_gate().is_some() => "gate",
        Status::Running => "running",
        Status::Paused { .. } => "paused",
        Status::Stopping { .. } => "stopping",
        Status::Ended { end } => match end {
            End::Completed => "completed",
            End::Rejected { .. } => "rejected",
            End::Cancelled { .. } => "cancelled",
            End::Failed { .. } => "failed",
        },
    }
}

impl Store {
    /// Makes a run, or finds the one that an earlier request with the same key made.
    pub async fn create_run<T: Serialize + Sync>(&self, new: NewRun<'_, T>) -> Result<Created> {
        let mut tx = self.db().begin().await?;
        if let Some(idempotency) = new.idempotency
            && let Some(before) = made_before(&mut tx, idempotency).await?
        {
            return Ok(Created::Before(before));
        }
        insert_run(&mut tx, &new).await?;
        insert_transition(&mut tx, new.run, &"created", new.actor, new.now_ms).await?;
        tx.commit().await.doing("making a run")?;
        self.committed();
        Ok(Created::New(new.run.id))
    }

    /// Works one event into a run, durably.
    pub async fn apply(&self, change: Move<'_>) -> Result<Moved, ApplyError> {
        let mut tx = self.db().begin().await?;
        let moved = apply_in(&mut tx, change).await?;
        tx.commit().await.doing("moving a run")?;
        self.committed();
        Ok(moved)
    }

    pub async fn run(&self, id: RunId) -> Result<Run> {
        let mut connection = self.db().read().acquire().await.doing("reading a run")?;
        load(&mut connection, id).await
    }

    /// What the run was started with.
    pub async fn run_spec<T: DeserializeOwned>(&self, id: RunId) -> Result<T> {
        let spec: Option<String> = sqlx::query_scalar("SELECT spec FROM runs WHERE id = $1")
            .bind(id.to_string())
            .fetch_optional(self.db().read())
            .await
            .doing("reading what a run was started with")?;
        let spec = spec.ok_or_else(|| no_run(id))?;
        serde_json::from_str(&spec).map_err(corrupt("what a run was started with"))
    }

    pub async fn run_summary(&self, id: RunId) -> Result<RunSummary> {
        let row: Option<SummaryRow> = sqlx::query_as(
            "SELECT id, version, name, status, created_at, updated_at, ended_at \
             FROM runs WHERE id = $1",
        )
        .bind(id.to_string())
        .fetch_optional(self.db().read())
        .await
        .doing("reading a run")?;
        summary(row.ok_or_else(|| no_run(id))?)
    }

    pub async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunSummary>> {
        let ended = filter.only.map(|life| i64::from(life == Life::Ended));
        let rows: Vec<SummaryRow> = sqlx::query_as(
            "SELECT id, version, name, status, created_at, updated_at, ended_at FROM runs \
             WHERE ($1 IS NULL OR status = $1) \
             AND ($2 IS NULL OR $2 = CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END) \
             AND ($3 IS NULL OR (created_at, id) < (SELECT created_at, id FROM runs WHERE id = $3)) \
             ORDER BY created_at DESC, id DESC LIMIT $4",
        )
        .bind(&filter.status)
        .bind(ended)
        .bind(filter.before.map(|id| id.to_string()))
        .bind(page_size(filter.limit))
        .fetch_all(self.db().read())
        .await
        .doing("listing runs")?;
        rows.into_iter().map(summary).collect()
    }

    /// Every run that has not ended, oldest first: what a restart must look at (R14).
    pub async fn live_runs(&self) -> Result<Vec<Run>> {
        let states: Vec<String> = sqlx::query_scalar(
            "SELECT state FROM runs WHERE ended_at IS NULL ORDER BY created_at, id",
        )
        .fetch_all(self.db().read())
        .await
        .doing("reading the runs that live")?;
        states
            .iter()
            .map(|state| serde_json::from_str(state).map_err(corrupt("a run's state")))
            .collect()
    }

    /// What moved a run, from the given version on.
    pub async fn transitions(&self, run: RunId, from: u64, limit: u32) -> Result<Vec<Transition>> {
        let rows: Vec<(i64, String, String, i64)> = sqlx::query_as(
            "SELECT version, event, actor, at FROM transitions \
             WHERE run_id = $1 AND version >= $2 ORDER BY version LIMIT $3",
        )
        .bind(run.to_string())
        .bind(from as i64)
        .bind(page_size(limit))
        .fetch_all(self.db().read())
        .await
        .doing("reading what moved a run")?;
        Ok(rows
            .into_iter()
            .map(|(version, event, actor, at_ms)| Transition {
                version: version as u64,
                event,
                actor,
                at_ms,
            })
            .collect())
    }
}

type SummaryRow = (String, i64, String, String, i64, i64, Option<i64>);

/// A page holds 100 rows unless told, and never more than 1,000.
pub(crate) fn page_size(limit: u32) -> i64 {
    match limit {
        0 => 100,
        some => i64::from(some.min(1000)),
    }
}

fn summary(row: SummaryRow) -> Result<RunSummary> {
    let (id, version, name, status, created_at_ms, updated_at_ms, ended_at_ms) = row;
    Ok(RunSummary {
        id: id.parse().map_err(corrupt("a run's id"))?,
        version: version as u64,
        name,
        status,
        created_at_ms,
        updated_at_ms,
        ended_at_ms,
    })
}

fn no_run(id: RunId) -> Error {
    Error::NotFound {
        kind: "run",
        name: id.to_string(),
    }
}

/// The move inside a caller's transaction: the state is read there, so the version check holds.
pub(crate) async fn apply_in(tx: &mut Tx, change: Move<'_>) -> Result<Moved, ApplyError> {
    let before = load(&mut *tx, change.run).await?;
    check_version(&before, change.expected)?;
    let transition = run::step(&before, change.event, change.now_ms)?;
    let after = transition.run;
    if after.version == before.version {
        return Ok(Moved::Repeated(after));
    }
    update_run(&mut *tx, &before, &after, change.now_ms).await?;
    insert_transition(&mut *tx, &after, change.event, change.actor, change.now_ms).await?;
    outbox::insert(&mut *tx, &transition.effects, change.now_ms).await?;
    gates::note_decision(&mut *tx, &before, change.event, change.now_ms).await?;
    Ok(Moved::To(after))
}

fn check_version(run: &Run, expected: Expected) -> Result<()> {
    match expected {
        Expected::Version(expected) if expected != run.version => Err(Error::VersionConflict {
            run: run.id,
            expected,
            found: run.version,
        }),
        _ => Ok(()),
    }
}

async fn load(connection: &mut Connection, id: RunId) -> Result<Run> {
    let state: Option<String> = sqlx::query_scalar("SELECT state FROM runs WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .doing("reading a run")?;
    let state = state.ok_or_else(|| no_run(id))?;
    serde_json::from_str(&state).map_err(corrupt("a run's state"))
}

async fn made_before(tx: &mut Connection, idempotency: Idempotency<'_>) -> Result<Option<RunId>> {
    let row: Option<(String, String)> =
        sqlx::query_as("SELECT id, request_hash FROM runs WHERE idempotency_key = $1")
            .bind(idempotency.key)
            .fetch_optional(tx)
            .await
            .doing("looking for an earlier request")?;
    let Some((id, hash)) = row else {
        return Ok(None);
    };
    if hash != idempotency.request_hash {
        return Err(Error::KeyReused {
            key: idempotency.key.to_owned(),
        });
    }
    id.parse().map(Some).map_err(corrupt("a run's id"))
}

fn bounded_json(what: &'static str, value: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string(value).map_err(encode(what))?;
    if json.len() > MAX_STATE_BYTES {
        return Err(Error::TooLarge {
            what,
            size: json.len() as u64,
            max: MAX_STATE_BYTES as u64,
        });
    }
    Ok(json)
}

async fn insert_run<T: Serialize>(tx: &mut Connection, new: &NewRun<'_, T>) -> Result<()> {
    sqlx::query(
        "INSERT INTO runs (id, version, name, spec, state, status, created_at, updated_at, ended_at, \
         idempotency_key, request_hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10)",
    )
    .bind(new.run.id.to_string())
    .bind(new.run.version as i64)
    .bind(new.name)
    .bind(bounded_json("what a run was started with", new.spec)?)
    .bind(bounded_json("a run's state", new.run)?)
    .bind(status_word(new.run))
    .bind(new.now_ms)
    .bind(new.run.end().map(|_| new.now_ms))
    .bind(new.idempotency.map(|given| given.key))
    .bind(new.idempotency.map(|given| given.request_hash))
    .execute(tx)
    .await
    .doing("making a run")?;
    Ok(())
}

async fn update_run(tx: &mut Connection, before: &Run, after: &Run, now_ms: i64) -> Result<()> {
    let written = sqlx::query(
        "UPDATE runs SET version = $3, state = $4, status = $5, updated_at = $6, \
         ended_at = COALESCE(ended_at, $7) WHERE id = $1 AND version = $2",
    )
    .bind(after.id.to_string())
    .bind(before.version as i64)
    .bind(after.version as i64)
    .bind(bounded_json("a run's state", after)?)
    .bind(status_word(after))
    .bind(now_ms)
    .bind(after.end().map(|_| now_ms))
    .execute(tx)
    .await
    .doing("moving a run")?;
    if written.rows_affected() == 1 {
        return Ok(());
    }
    // Only a database with many writers comes here.
    Err(Error::VersionConflict {
        run: after.id,
        expected: before.version,
        found: after.version,
    })
}

async fn insert_transition(
    tx: &mut Connection,
    run: &Run,
    event: &impl Serialize,
    actor: &str,
    now_ms: i64,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO transitions (run_id, version, event, actor, at) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(run.id.to_string())
    .bind(run.version as i64)
    .bind(bounded_json("a run's event", event)?)
    .bind(actor)
    .bind(now_ms)
    .execute(tx)
    .await
    .doing("recording what moved a run")?;
    Ok(())
}
