//! The rows of logs: which there are, so that files and rows can be compared (case 25).

use crate::{
    db::Connection,
    error::{Doing, Result},
    phase::{Held, PhaseKey},
    store::{Store, require_held},
};

impl Store {
    /// The logs that nobody has closed: at a start, those whose writer was killed.
    pub async fn unsealed_logs(&self) -> Result<Vec<PhaseKey>> {
        let rows: Vec<(String, String, i64)> = sqlx::query_as(
            "SELECT run_id, phase, attempt FROM logs WHERE sealed_at IS NULL \
             ORDER BY created_at, run_id, phase, attempt",
        )
        .fetch_all(self.db().read())
        .await
        .doing("reading which logs are open")?;
        rows.into_iter()
            .map(|(run, phase, attempt)| PhaseKey::from_row(&run, &phase, attempt))
            .collect()
    }

    /// Notes that a log is complete, for example after it was recovered.
    pub async fn note_log_end(&self, key: &PhaseKey, now_ms: i64) -> Result<()> {
        sqlx::query(
            "UPDATE logs SET sealed_at = COALESCE(sealed_at, $4) \
             WHERE run_id = $1 AND phase = $2 AND attempt = $3",
        )
        .bind(key.run.to_string())
        .bind(key.phase.as_str())
        .bind(i64::from(key.attempt))
        .bind(now_ms)
        .execute(self.db().write())
        .await
        .doing("noting the end of a log")?;
        self.committed();
        Ok(())
    }

    pub(super) async fn note_log(&self, held: &Held, now_ms: i64) -> Result<()> {
        let mut tx = self.db().begin().await?;
        require_held(&mut tx, held, now_ms).await?;
        insert(&mut tx, &held.key, now_ms).await?;
        tx.commit().await.doing("noting a log")?;
        self.committed();
        Ok(())
    }
}

async fn insert(tx: &mut Connection, key: &PhaseKey, now_ms: i64) -> Result<()> {
    sqlx::query(
        "INSERT INTO logs (run_id, phase, attempt, created_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (run_id, phase, attempt) DO NOTHING",
    )
    .bind(key.run.to_string())
    .bind(key.phase.as_str())
    .bind(i64::from(key.attempt))
    .bind(now_ms)
    .execute(tx)
    .await
    .doing("noting a log")?;
    Ok(())
}
