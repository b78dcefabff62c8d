//! What phases said: their events, masked by the caller, in an unbroken sequence per attempt.
//!
//! A reader names the last sequence it has seen and gets what came after, so a broken connection loses
//! nothing. Events are bounded in size (long texts are cut, and say so) and in number (the last row then
//! counts what was dropped).

use serde_json::{Value, json};

use crate::{
    db::Connection,
    error::{Doing, Result, corrupt, encode},
    phase::{Held, PhaseKey},
    runs::page_size,
    store::{Store, require_held},
};

/// The largest event, as JSON.
pub const MAX_EVENT_BYTES: usize = 256 << 10;
/// The most events of one attempt; one more row counts those that came after.
pub const MAX_EVENTS: i64 = 100_000;
/// What the row after the last event is called.
pub const DROPPED: &str = "dropped";

/// An event to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub kind: String,
    pub at_ms: i64,
    pub payload: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    /// From 1, without a gap.
    pub seq: u64,
    pub at_ms: i64,
    pub kind: String,
    pub payload: Value,
}

impl Store {
    /// Keeps events and returns the sequence of the last. Refused for a stale holder.
    pub async fn append_events(
        &self,
        held: &Held,
        events: &[NewEvent],
        now_ms: i64,
    ) -> Result<u64> {
        let mut tx = self.db().begin().await?;
        require_held(&mut tx, held, now_ms).await?;
        let mut seq = last_seq(&mut tx, &held.key).await?;
        let room = usize::try_from((MAX_EVENTS - seq).max(0)).unwrap_or(0);
        let (kept, dropped) = events.split_at(events.len().min(room));
        for event in kept {
            seq += 1;
            insert(&mut tx, &held.key, seq, event).await?;
        }
        if !dropped.is_empty() {
            seq = count_dropped(&mut tx, &held.key, dropped.len(), now_ms).await?;
        }
        tx.commit().await.doing("keeping events")?;
        self.committed();
        Ok(seq as u64)
    }

    /// The events after `after`, oldest first.
    pub async fn events(&self, key: &PhaseKey, after: u64, limit: u32) -> Result<Vec<StoredEvent>> {
        let rows: Vec<(i64, i64, String, String)> = sqlx::query_as(
            "SELECT seq, at, kind, payload FROM events \
             WHERE run_id = $1 AND phase = $2 AND attempt = $3 AND seq > $4 ORDER BY seq LIMIT $5",
        )
        .bind(key.run.to_string())
        .bind(key.phase.as_str())
        .bind(i64::from(key.attempt))
        .bind(after as i64)
        .bind(page_size(limit))
        .fetch_all(self.db().read())
        .await
        .doing("reading events")?;
        rows.into_iter()
            .map(|(seq, at_ms, kind, payload)| {
                Ok(StoredEvent {
                    seq: seq as u64,
                    at_ms,
                    kind,
                    payload: serde_json::from_str(&payload).map_err(corrupt("an event"))?,
                })
            })
            .collect()
    }
}

async fn last_seq(tx: &mut Connection, key: &PhaseKey) -> Result<i64> {
    let last: Option<i64> = sqlx::query_scalar(
        "SELECT max(seq) FROM events WHERE run_id = $1 AND phase = $2 AND attempt = $3",
    )
    .bind(key.run.to_string())
    .bind(key.phase.as_str())
    .bind(i64::from(key.attempt))
    .fetch_one(tx)
    .await
    .doing("finding the last event")?;
    Ok(last.unwrap_or(0))
}

async fn insert(tx: &mut Connection, key: &PhaseKey, seq: i64, event: &NewEvent) -> Result<()> {
    sqlx::query(
        "INSERT INTO events (run_id, phase, attempt, seq, at, kind, payload) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(key.run.to_string())
    .bind(key.phase.as_str())
    .bind(i64::from(key.attempt))
    .bind(seq)
    .bind(event.at_ms)
    .bind(&event.kind)
    .bind(bounded(&event.payload)?)
    .execute(tx)
    .await
    .doing("keeping an event")?;
    Ok(())
}

/// Adds to the row after the last event, or makes it.
async fn count_dropped(
    tx: &mut Connection,
    key: &PhaseKey,
    dropped: usize,
    now_ms: i64,
) -> Result<i64> {
    let seq = MAX_EVENTS + 1;
    let before: Option<String> = sqlx::query_scalar(
        "SELECT payload FROM events WHERE run_id = $1 AND phase = $2 AND attempt = $3 AND seq = $4",
    )
    .bind(key.run.to_string())
    .bind(key.phase.as_str())
    .bind(i64::from(key.attempt))
    .bind(seq)
    .fetch_optional(&mut *tx)
    .await
    .doing("counting dropped events")?;
    let before = before
        .and_then(|text| serde_json::from_str::<Value>(&text).ok())
        .and_then(|value| value["count"].as_u64())
        .unwrap_or(0);
    sqlx::query(
        "INSERT INTO events (run_id, phase, attempt, seq, at, kind, payload) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (run_id, phase, attempt, seq) DO UPDATE SET payload = excluded.payload",
    )
    .bind(key.run.to_string())
    .bind(key.phase.as_str())
    .bind(i64::from(key.attempt))
    .bind(seq)
    .bind(now_ms)
    .bind(DROPPED)
    .bind(json!({ "count": before + dropped as u64 }).to_string())
    .execute(tx)
    .await
    .doing("counting dropped events")?;
    Ok(seq)
}

/// The payload as JSON of at most [`MAX_EVENT_BYTES`]: long texts are cut to ever smaller pieces, and
/// where that is not enough the payload is replaced by its size.
fn bounded(payload: &Value) -> Result<String> {
    let text = serde_json::to_string(payload).map_err(encode("an event"))?;
    if text.len() <= MAX_EVENT_BYTES {
        return Ok(text);
    }
    for keep in [MAX_EVENT_BYTES / 8, MAX_EVENT_BYTES / 64, 256] {
        let mut cut = payload.clone();
        cut_strings(&mut cut, keep);
        let text = serde_json::to_string(&cut).map_err(encode("an event"))?;
        if text.len() <= MAX_EVENT_BYTES {
            return Ok(text);
        }
    }
    Ok(json!({ "cut": { "bytes": text.len() } }).to_string())
}

fn cut_strings(value: &mut Value, keep: usize) {
    match value {
        Value::String(text) if text.len() > keep => {
            let end = text.floor_char_boundary(keep);
            let gone = text.len() - end;
            text.truncate(end);
            text.push_str(&format!("… [{gone} bytes cut]"));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| cut_strings(item, keep)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| cut_strings(field, keep)),
        _ => {}
    }
}
