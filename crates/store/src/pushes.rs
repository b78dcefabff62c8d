//! The ledger of pushes (R14): what the git gateway was about to forward, written before it does.
//!
//! ```text
//!            record (fence checked)          finish
//!   (none) ───────────────────────▶ recorded ─────▶ done   the remote has `new`; the phase is complete
//!                                          └──────▶ void   the remote refused, or never got it
//! ```
//!
//! A crash leaves `recorded` rows. Recovery reads them with [`Store::open_pushes`], asks the remote where
//! its ref is, and finishes each by what it finds there.

use bulkhead_model::{CommitId, Fence, RunId, run::RunEvent};
use uuid::Uuid;

use crate::{
    db::Connection,
    error::{Doing, Error, Result, corrupt},
    phase::{Held, PhaseKey},
    runs::{ApplyError, Expected, Move, apply_in, page_size},
    store::{Store, require_held},
};

/// The id of one row of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PushId(Uuid);

impl std::fmt::Display for PushId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushState {
    Recorded,
    Done,
    Void,
}

impl PushState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Done => "done",
            Self::Void => "void",
        }
    }

    fn parse(text: &str) -> Result<Self> {
        match text {
            "recorded" => Ok(Self::Recorded),
            "done" => Ok(Self::Done),
            "void" => Ok(Self::Void),
            other => Err(corrupt("a push's state")(format!(
                "unknown state {other:?}"
            ))),
        }
    }
}

/// How a recorded push ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushEnd {
    Done,
    Void,
}

/// One update of one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    pub ref_name: String,
    /// None where the push makes the ref.
    pub old: Option<CommitId>,
    pub new: CommitId,
}

/// The ledger's answer to a push that is about to be forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedPush {
    /// It is durable now, and the run knows of it.
    New(PushId),
    /// The same update was recorded for this attempt before: the client repeats itself, and may.
    Repeat(PushId),
    /// This attempt has pushed something else: one push completes a phase.
    AlreadyPushed { new: CommitId },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    pub id: PushId,
    pub held: Held,
    pub update: RefUpdate,
    pub state: PushState,
    pub recorded_at_ms: i64,
    pub finished_at_ms: Option<i64>,
}

impl Store {
    /// Writes down a push before it is forwarded, and works it into the run, in one transaction with
    /// the check that the holder's fence still holds.
    pub async fn record_push(
        &self,
        held: &Held,
        update: &RefUpdate,
        now_ms: i64,
    ) -> Result<RecordedPush, ApplyError> {
        let mut tx = self.db().begin().await?;
        require_held(&mut tx, held, now_ms).await?;
        if let Some(before) = counted(&mut tx, &held.key).await? {
            return Ok(match before.update == *update {
                true => RecordedPush::Repeat(before.id),
                false => RecordedPush::AlreadyPushed {
                    new: before.update.new,
                },
            });
        }
        let event = RunEvent::Pushed {
            fence: held.fence,
            old: update.old.clone(),
            new: update.new.clone(),
        };
        let change = Move {
            run: held.key.run,
            expected: Expected::Current,
            event: &event,
            actor: "git gateway",
            now_ms,
        };
        apply_in(&mut tx, change).await?;
        let id = insert(&mut tx, held, update, now_ms).await?;
        tx.commit().await.doing("recording a push")?;
        self.committed();
        Ok(RecordedPush::New(id))
    }

    /// Writes down how a push ended. Needs no fence: what the remote has is a fact, whoever says it.
    /// Saying the same twice changes nothing.
    pub async fn finish_push(&self, id: PushId, end: PushEnd, now_ms: i64) -> Result<()> {
        let state = match end {
            PushEnd::Done => PushState::Done,
            PushEnd::Void => PushState::Void,
        };
        let finished = sqlx::query(
            "UPDATE pushes SET state = $2, finished_at = COALESCE(finished_at, $3) \
             WHERE id = $1 AND state IN ('recorded', $2)",
        )
        .bind(id.to_string())
        .bind(state.as_str())
        .bind(now_ms)
        .execute(self.db().write())
        .await
        .doing("finishing a push")?;
        if finished.rows_affected() == 1 {
            return Ok(());
        }
        Err(Error::NotFound {
            kind: "open push",
            name: id.to_string(),
        })
    }

    /// The pushes of which nobody knows yet how they ended, of one run or of all.
    pub async fn open_pushes(&self, run: Option<RunId>) -> Result<Vec<Push>> {
        self.select_pushes(run, Some(PushState::Recorded), 1000)
            .await
    }

    /// All pushes of a run, oldest first.
    pub async fn pushes(&self, run: RunId) -> Result<Vec<Push>> {
        self.select_pushes(Some(run), None, 1000).await
    }

    /// The push of this attempt that counts: recorded, or known to have landed.
    pub async fn push_of(&self, key: &PhaseKey) -> Result<Option<Push>> {
        let mut connection = self.db().read().acquire().await.doing("reading a push")?;
        counted(&mut connection, key).await
    }

    async fn select_pushes(
        &self,
        run: Option<RunId>,
        state: Option<PushState>,
        limit: u32,
    ) -> Result<Vec<Push>> {
        let rows: Vec<PushRow> = sqlx::query_as(
            "SELECT id, run_id, phase, attempt, fence, ref_name, old_commit, new_commit, state, \
             recorded_at, finished_at FROM pushes \
             WHERE ($1 IS NULL OR run_id = $1) AND ($2 IS NULL OR state = $2) \
             ORDER BY recorded_at, id LIMIT $3",
        )
        .bind(run.map(|id| id.to_string()))
        .bind(state.map(PushState::as_str))
        .bind(page_size(limit))
        .fetch_all(self.db().read())
        .await
        .doing("reading pushes")?;
        rows.into_iter().map(push).collect()
    }
}

type PushRow = (
    String,
    String,
    String,
    i64,
    i64,
    String,
    Option<String>,
    String,
    String,
    i64,
    Option<i64>,
);

const COLUMNS_OF_ATTEMPT: &str = "SELECT id, run_id, phase, attempt, fence, ref_name, old_commit, \
     new_commit, state, recorded_at, finished_at FROM pushes \
     WHERE run_id = $1 AND phase = $2 AND attempt = $3 AND state <> 'void'";

/// The push of this attempt that counts, whether it is known to have landed or not.
async fn counted(tx: &mut Connection, key: &PhaseKey) -> Result<Option<Push>> {
    let row: Option<PushRow> = sqlx::query_as(COLUMNS_OF_ATTEMPT)
        .bind(key.run.to_string())
        .bind(key.phase.as_str())
        .bind(i64::from(key.attempt))
        .fetch_optional(tx)
        .await
        .doing("looking for an earlier push")?;
    row.map(push).transpose()
}

async fn insert(
    tx: &mut Connection,
    held: &Held,
    update: &RefUpdate,
    now_ms: i64,
) -> Result<PushId> {
    let id = PushId(Uuid::now_v7());
    sqlx::query(
        "INSERT INTO pushes (id, run_id, phase, attempt, fence, ref_name, old_commit, \
         new_commit, state, recorded_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'recorded', $9)",
    )
    .bind(id.to_string())
    .bind(held.key.run.to_string())
    .bind(held.key.phase.as_str())
    .bind(i64::from(held.key.attempt))
    .bind(held.fence.0 as i64)
    .bind(&update.ref_name)
    .bind(update.old.as_ref().map(CommitId::as_str))
    .bind(update.new.as_str())
    .bind(now_ms)
    .execute(tx)
    .await
    .doing("recording a push")?;
    Ok(id)
}

fn push(row: PushRow) -> Result<Push> {
    let (id, run, phase, attempt, fence, ref_name, old, new, state, recorded_at_ms, finished_at_ms) =
        row;
    Ok(Push {
        id: PushId(id.parse().map_err(corrupt("a push's id"))?),
        held: Held {
            key: PhaseKey::from_row(&run, &phase, attempt)?,
            fence: Fence(fence as u64),
        },
        update: RefUpdate {
            ref_name,
            old: old
                .map(|old| old.parse().map_err(corrupt("a push's old commit")))
                .transpose()?,
            new: new.parse().map_err(corrupt("a push's new commit"))?,
        },
        state: PushState::parse(&state)?,
        recorded_at_ms,
        finished_at_ms,
    })
}
