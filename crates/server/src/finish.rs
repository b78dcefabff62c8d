//! What is left to do when a run has reached its end.

use std::sync::Arc;

use bulkhead_model::{
    RunId,
    run::{End, PhaseState},
};
use bulkhead_store::PhaseKey;

use crate::{outbox::EffectError, plane::Plane};

/// Takes back every token of the run. They are worth nothing without a lease anyway; this makes sure that
/// they stay so.
pub(crate) async fn run(plane: &Arc<Plane>, run: RunId, end: &End) -> Result<(), EffectError> {
    let ended = plane.store.run(run).await?;
    for (phase, plan) in ended.phases.iter().zip(ended.plan.phases()) {
        debug_assert!(!matches!(phase.state, PhaseState::Running(_)));
        for attempt in 1..=phase.attempts {
            let key = PhaseKey {
                run,
                phase: plan.name.clone(),
                attempt,
            };
            plane
                .store
                .revoke_phase_tokens(&key, plane.now_ms())
                .await?;
        }
    }
    plane.repos.forget(run).await;
    tracing::info!(%run, %end, "a run has ended");
    Ok(())
}
