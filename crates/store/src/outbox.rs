//! The outbox: what must still be done because of a committed move (D1).
//!
//! ```text
//!            claim                ack
//!   due ───────────────▶ claimed ─────▶ done
//!    ▲                   │    │ give_up
//!    └── fail, or the ───┘    └────────▶ given up (shown to people, never silently dropped)
//!        claim runs out
//! ```
//!
//! An effect is performed at least once, and the effects of one run in their order: the next one is due
//! only when the one before is done or given up. Whoever performs an effect makes it idempotent by its
//! id. A claim carries a random word, so an answer that comes after the claim has
//! passed to another worker changes nothing.

use bulkhead_model::{RunId, run::Effect};
use uuid::Uuid;

use crate::{
    db::Connection,
    error::{Doing, Error, Result, corrupt, encode},
    store::Store,
};

const FIRST_RETRY_MS: i64 = 250;
const LAST_RETRY_MS: i64 = 60_000;
/// The part of an error that is kept with an effect.
const MAX_ERROR_CHARS: usize = 2_000;

/// An effect that this worker may perform now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    seq: i64,
    pub effect: Effect,
    /// How often it was claimed, this time included.
    pub attempts: u32,
    claim: String,
}

/// An effect that is not done yet, as shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    pub effect: Effect,
    pub attempts: u32,
    pub next_at_ms: i64,
    pub last_error: Option<String>,
    pub given_up_at_ms: Option<i64>,
}

impl Store {
    /// Waits until something was committed into the outbox, or somebody rang. A ring that nobody
    /// waits for is kept, so a worker that claims, finds nothing and then waits misses none.
    pub async fn outbox_rung(&self) {
        self.doorbell().notified().await;
    }

    /// Wakes the worker, for example when an effect was made due.
    pub fn ring_outbox(&self) {
        self.doorbell().notify_one();
    }

    /// Takes up to `limit` due effects for `hold_ms`, at most one of each run.
    pub async fn claim_effects(
        &self,
        limit: u32,
        hold_ms: i64,
        now_ms: i64,
    ) -> Result<Vec<Claimed>> {
        let claim = Uuid::now_v7().to_string();
        let rows: Vec<(i64, String, i64)> = sqlx::query_as(self.db().dialect.claim_effects())
            .bind(now_ms)
            .bind(now_ms + hold_ms)
            .bind(&claim)
            .bind(i64::from(limit))
            .fetch_all(self.db().write())
            .await
            .doing("claiming effects")?;
        let mut claimed = rows
            .into_iter()
            .map(|(seq, payload, attempts)| {
                Ok(Claimed {
                    seq,
                    effect: serde_json::from_str(&payload).map_err(corrupt("an effect"))?,
                    attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                    claim: claim.clone(),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        // RETURNING promises no order.
        claimed.sort_by_key(|effect| effect.seq);
        Ok(claimed)
    }

    /// The effect is done.
    pub async fn ack_effect(&self, effect: &Claimed, now_ms: i64) -> Result<()> {
        let done = sqlx::query(
            "UPDATE outbox SET done_at = $3, claim = NULL, claimed_until = 0, last_error = NULL \
             WHERE seq = $1 AND claim = $2 AND done_at IS NULL",
        )
        .bind(effect.seq)
        .bind(&effect.claim)
        .bind(now_ms)
        .execute(self.db().write())
        .await
        .doing("marking an effect as done")?;
        still_mine(effect, done.rows_affected())
    }

    /// The effect failed; it comes again after a pause that doubles with each attempt, a minute at
    /// most. Returns when.
    pub async fn fail_effect(&self, effect: &Claimed, error: &str, now_ms: i64) -> Result<i64> {
        let next_at = now_ms + retry_after_ms(effect.attempts);
        let failed = sqlx::query(
            "UPDATE outbox SET next_at = $3, claim = NULL, claimed_until = 0, last_error = $4 \
             WHERE seq = $1 AND claim = $2 AND done_at IS NULL",
        )
        .bind(effect.seq)
        .bind(&effect.claim)
        .bind(next_at)
        .bind(shorten(error))
        .execute(self.db().write())
        .await
        .doing("noting that an effect failed")?;
        still_mine(effect, failed.rows_affected())?;
        Ok(next_at)
    }

    /// The effect can never succeed. It is kept, with the reason, among [`Store::pending_effects`].
    pub async fn give_up_effect(&self, effect: &Claimed, error: &str, now_ms: i64) -> Result<()> {
        let given_up = sqlx::query(
            "UPDATE outbox SET given_up_at = $3, claim = NULL, claimed_until = 0, last_error = $4 \
             WHERE seq = $1 AND claim = $2 AND done_at IS NULL",
        )
        .bind(effect.seq)
        .bind(&effect.claim)
        .bind(now_ms)
        .bind(shorten(error))
        .execute(self.db().write())
        .await
        .doing("giving up an effect")?;
        still_mine(effect, given_up.rows_affected())
    }

    /// Lengthens the claim on an effect that takes long.
    pub async fn extend_claim(&self, effect: &Claimed, hold_ms: i64, now_ms: i64) -> Result<()> {
        let extended = sqlx::query(
            "UPDATE outbox SET claimed_until = $3 WHERE seq = $1 AND claim = $2 AND done_at IS NULL",
        )
        .bind(effect.seq)
        .bind(&effect.claim)
        .bind(now_ms + hold_ms)
        .execute(self.db().write())
        .await
        .doing("lengthening a claim")?;
        still_mine(effect, extended.rows_affected())
    }

    /// Frees every claim. For the one server at its start: whoever held them is gone.
    pub async fn free_claims(&self) -> Result<u64> {
        let freed = sqlx::query(
            "UPDATE outbox SET claim = NULL, claimed_until = 0 \
             WHERE claim IS NOT NULL AND done_at IS NULL",
        )
        .execute(self.db().write())
        .await
        .doing("freeing claims")?;
        self.doorbell().notify_one();
        Ok(freed.rows_affected())
    }

    /// When the next effect can be claimed, for the worker's alarm clock.
    pub async fn next_effect_due_ms(&self) -> Result<Option<i64>> {
        sqlx::query_scalar(
            "SELECT min(CASE WHEN o.next_at > o.claimed_until THEN o.next_at \
             ELSE o.claimed_until END) FROM outbox o \
             WHERE o.done_at IS NULL AND o.given_up_at IS NULL \
             AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.run_id = o.run_id AND e.seq < o.seq \
                             AND e.done_at IS NULL AND e.given_up_at IS NULL)",
        )
        .fetch_one(self.db().read())
        .await
        .doing("looking when the next effect is due")
    }

    /// The effects that are not done, of one run or of all, in their order.
    pub async fn pending_effects(&self, run: Option<RunId>) -> Result<Vec<Pending>> {
        let rows: Vec<PendingRow> = sqlx::query_as(
            "SELECT payload, attempts, next_at, last_error, given_up_at \
             FROM outbox WHERE done_at IS NULL AND ($1 IS NULL OR run_id = $1) \
             ORDER BY seq LIMIT 1000",
        )
        .bind(run.map(|id| id.to_string()))
        .fetch_all(self.db().read())
        .await
        .doing("reading what is still to be done")?;
        rows.into_iter()
            .map(
                |(payload, attempts, next_at_ms, last_error, given_up_at_ms)| {
                    Ok(Pending {
                        effect: serde_json::from_str(&payload).map_err(corrupt("an effect"))?,
                        attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                        next_at_ms,
                        last_error,
                        given_up_at_ms,
                    })
                },
            )
            .collect()
    }
}

type PendingRow = (String, i64, i64, Option<String>, Option<i64>);

/// Puts the effects of one move into the outbox. Their ids follow from the move, so the same move can
/// never put them in twice.
pub(crate) async fn insert(tx: &mut Connection, effects: &[Effect], now_ms: i64) -> Result<()> {
    for effect in effects {
        sqlx::query(
            "INSERT INTO outbox (effect_id, run_id, payload, next_at) VALUES ($1, $2, $3, $4)",
        )
        .bind(effect.id.to_string())
        .bind(effect.id.run.to_string())
        .bind(serde_json::to_string(effect).map_err(encode("an effect"))?)
        .bind(now_ms)
        .execute(&mut *tx)
        .await
        .doing("putting an effect into the outbox")?;
    }
    Ok(())
}

fn still_mine(effect: &Claimed, rows: u64) -> Result<()> {
    if rows == 1 {
        return Ok(());
    }
    Err(Error::ClaimLost {
        effect: effect.effect.id,
    })
}

fn retry_after_ms(attempts: u32) -> i64 {
    let doublings = attempts.saturating_sub(1).min(16);
    (FIRST_RETRY_MS << doublings).min(LAST_RETRY_MS)
}

fn shorten(error: &str) -> String {
    error.chars().take(MAX_ERROR_CHARS).collect()
}
