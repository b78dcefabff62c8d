//! What people decided at gates: one row per gate, written in the transaction of the move that the
//! decision causes. A gate's id is its own opening's, so a second answer finds the first (case 61).

use bulkhead_model::{
    GateId, PhaseName, RunId,
    gate::{Answer, Binding},
    run::{Run, RunEvent},
};

use crate::{
    db::Connection,
    error::{Doing, Result, corrupt, encode},
    store::Store,
};

/// One decision, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateDecision {
    pub gate: GateId,
    pub run: RunId,
    pub phase: PhaseName,
    pub answer: Answer,
    /// What the person saw (case 62).
    pub shown: Binding,
    pub by: String,
    pub at_ms: i64,
}

impl Store {
    /// The decisions of a run, oldest first.
    pub async fn gate_decisions(&self, run: RunId) -> Result<Vec<GateDecision>> {
        let rows: Vec<DecisionRow> = sqlx::query_as(
            "SELECT gate_id, run_id, phase, answer, shown, actor, at FROM gate_decisions \
             WHERE run_id = $1 ORDER BY at, gate_id LIMIT 1000",
        )
        .bind(run.to_string())
        .fetch_all(self.db().read())
        .await
        .doing("reading decisions")?;
        rows.into_iter().map(decision).collect()
    }
}

type DecisionRow = (String, String, String, String, String, String, i64);

fn decision(row: DecisionRow) -> Result<GateDecision> {
    let (gate, run, phase, answer, shown, by, at_ms) = row;
    Ok(GateDecision {
        gate: gate.parse().map_err(corrupt("a gate's id"))?,
        run: run.parse().map_err(corrupt("a run's id"))?,
        phase: phase.parse().map_err(corrupt("a phase's name"))?,
        answer: serde_json::from_str(&answer).map_err(corrupt("an answer"))?,
        shown: serde_json::from_str(&shown).map_err(corrupt("what was shown at a gate"))?,
        by,
        at_ms,
    })
}

/// Keeps the decision where the event is one.
pub(crate) async fn note_decision(
    tx: &mut Connection,
    before: &Run,
    event: &RunEvent,
    now_ms: i64,
) -> Result<()> {
    let RunEvent::Decision(decision) = event else {
        return Ok(());
    };
    let Some((index, _)) = before.open_gate() else {
        return Ok(());
    };
    sqlx::query(
        "INSERT INTO gate_decisions (gate_id, run_id, phase, answer, shown, actor, at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(decision.gate.to_string())
    .bind(before.id.to_string())
    .bind(before.plan.phases()[index].name.as_str())
    .bind(serde_json::to_string(&decision.answer).map_err(encode("an answer"))?)
    .bind(serde_json::to_string(&decision.shown).map_err(encode("what was shown at a gate"))?)
    .bind(decision.by.name())
    .bind(now_ms)
    .execute(tx)
    .await
    .doing("recording a decision")?;
    Ok(())
}
