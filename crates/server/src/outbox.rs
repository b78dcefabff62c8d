//! The worker that performs effects (D1): at least once, each idempotent by what the run says now.
//!
//! The effects of one run are performed one after the other, in their order; those of different runs side by
//! side. An effect that fails comes again after a pause, and the later ones of its run wait for it: so nothing
//! that may take long (a phase, a notice) is waited for here.

use std::{sync::Arc, time::Duration};

use bulkhead_model::run::{Action, Effect};
use bulkhead_store::outbox::Claimed;
use tokio::task::JoinSet;

use crate::{
    backoff::Backoff,
    finish, notify,
    phase::{self, Dispatch},
    plane::Plane,
    problem::chain,
};

/// How many effects are performed at once.
const AT_ONCE: usize = 32;
/// How long a claim holds; an effect that takes longer is claimed again, which its idempotence allows.
const HOLD_MS: i64 = 120_000;
/// The worker looks at least this often, whatever rings or does not.
const LOOK_AT_LEAST: Duration = Duration::from_secs(5);

/// Why an effect was not performed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EffectError {
    #[error(transparent)]
    Store(#[from] bulkhead_store::Error),
    #[error("{0}")]
    Later(String),
}

pub(crate) async fn work(plane: Arc<Plane>) {
    let mut running = JoinSet::new();
    let mut backoff = Backoff::new();
    while !plane.closing.is_cancelled() {
        while running.try_join_next().is_some() {}
        let room = AT_ONCE.saturating_sub(running.len());
        match claim(&plane, room).await {
            Ok(claimed) => {
                backoff = Backoff::new();
                let full = claimed.len() == room;
                for effect in claimed {
                    let plane = Arc::clone(&plane);
                    running.spawn(async move { perform(&plane, effect).await });
                }
                wait(&plane, &mut running, full).await;
            }
            Err(error) => {
                tracing::error!(
                    error = chain(&error),
                    "claiming effects failed; trying again"
                );
                backoff.pause().await;
            }
        }
    }
    // What is under way is repeated after the next start, so it need not be waited for long.
    drop(tokio::time::timeout(LOOK_AT_LEAST, running.join_all()).await);
}

async fn claim(plane: &Plane, room: usize) -> Result<Vec<Claimed>, bulkhead_store::Error> {
    let limit = u32::try_from(room).unwrap_or(0);
    if limit == 0 {
        return Ok(Vec::new());
    }
    plane
        .store
        .claim_effects(limit, HOLD_MS, plane.now_ms())
        .await
}

/// Waits until there may be something to do.
async fn wait(plane: &Plane, running: &mut JoinSet<()>, full: bool) {
    if full && !running.is_empty() {
        tokio::select! {
            _ = running.join_next() => {}
            () = plane.closing.cancelled() => {}
        }
        return;
    }
    let due = plane.store.next_effect_due_ms().await.ok().flatten();
    let until_due = due.map_or(LOOK_AT_LEAST, |due| {
        Duration::from_millis(u64::try_from(due - plane.now_ms()).unwrap_or(0))
    });
    tokio::select! {
        () = plane.store.outbox_rung() => {}
        () = tokio::time::sleep(until_due.clamp(Duration::from_millis(10), LOOK_AT_LEAST)) => {}
        () = plane.closing.cancelled() => {}
    }
}

async fn perform(plane: &Arc<Plane>, claimed: Claimed) {
    plane.fail_point("effect.claimed");
    let performed = act(plane, claimed.effect.clone()).await;
    plane.fail_point("effect.performed");
    let noted = match performed {
        Ok(()) => plane.store.ack_effect(&claimed, plane.now_ms()).await,
        Err(error) => put_off(plane, &claimed, &error).await,
    };
    plane.fail_point("effect.noted");
    if let Err(error) = noted {
        // The claim runs out and the effect comes again.
        tracing::warn!(
            effect = %claimed.effect.id,
            error = chain(&error),
            "cannot note an effect"
        );
    }
}

async fn act(plane: &Arc<Plane>, effect: Effect) -> Result<(), EffectError> {
    let run = effect.id.run;
    match effect.action {
        Action::Dispatch {
            phase,
            phase_index,
            attempt,
            fence,
            start,
            ..
        } => {
            let dispatch = Dispatch {
                run,
                phase,
                phase_index,
                attempt,
                fence,
                start,
            };
            phase::begin(plane, dispatch).await
        }
        Action::StopPhase { phase, fence } => phase::stop(plane, run, &phase, fence).await,
        Action::Notify { gate, .. } => {
            notify::begin(plane, run, gate);
            Ok(())
        }
        Action::FinishRun { end } => finish::run(plane, run, &end).await,
    }
}

async fn put_off(
    plane: &Plane,
    claimed: &Claimed,
    error: &EffectError,
) -> Result<(), bulkhead_store::Error> {
    let words = chain(error);
    tracing::warn!(effect = %claimed.effect.id, error = words, "an effect failed; it comes again");
    let later = plane
        .store
        .fail_effect(claimed, &words, plane.now_ms())
        .await;
    later.map(drop)
}
