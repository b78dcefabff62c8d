//! Phases in flight: one task each, from the dispatch until the run knows how it ended.
//!
//! ```text
//!  Dispatch effect ─▶ queued (waits for a place) ─▶ lease ─▶ Claimed ─▶ order + token ─▶ executor
//!                        │ cancelled: nothing to stop                                       │ report
//!                        ▼                                                                  ▼
//!                      (gone)          lease given back ◀─ PhaseEnded ◀─ branch read ◀─ token revoked
//! ```
//!
//! Where this process dies on the way, the reconciler of the next start dispatches the phase again under a
//! greater fence; where it is only closing, the task leaves the rest to that reconciler too.

mod order;
mod settle;
mod sink;
mod task;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bulkhead_model::{
    CommitId, EndReason, Fence, PhaseName, RunId,
    run::{Failure, PhaseEnd, RunEvent, Spent},
};
use bulkhead_runner::StopReason;
use bulkhead_store::{Held, PhaseKey};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{outbox::EffectError, plane::Plane};

pub(crate) use settle::{branch_tip, settle_push};

/// How long an attempt may take to end after it was asked to, before the effect says "later".
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// One attempt at one phase, as the run's machine asked for it.
#[derive(Debug, Clone)]
pub(crate) struct Dispatch {
    pub(crate) run: RunId,
    pub(crate) phase: PhaseName,
    pub(crate) phase_index: u32,
    pub(crate) attempt: u32,
    pub(crate) fence: Fence,
    pub(crate) start: Option<CommitId>,
}

impl Dispatch {
    pub(crate) fn held(&self) -> Held {
        Held {
            key: PhaseKey {
                run: self.run,
                phase: self.phase.clone(),
                attempt: self.attempt,
            },
            fence: self.fence,
        }
    }
}

/// The attempts that this process has a task for.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    live: Mutex<HashMap<(RunId, Fence), Live>>,
}

#[derive(Debug, Clone)]
struct Live {
    stop: Arc<watch::Sender<Option<StopReason>>>,
    over: CancellationToken,
}

impl Phases {
    pub(crate) fn has(&self, run: RunId, fence: Fence) -> bool {
        self.lock().contains_key(&(run, fence))
    }

    /// Asks an attempt to end, and returns what resolves when it has. None where there is no such task.
    pub(crate) fn stop(
        &self,
        run: RunId,
        fence: Fence,
        why: StopReason,
    ) -> Option<CancellationToken> {
        let live = self.lock().get(&(run, fence)).cloned()?;
        live.stop.send_if_modified(|now| match now {
            Some(_) => false,
            None => {
                *now = Some(why);
                true
            }
        });
        Some(live.over)
    }

    /// Registers an attempt; none where it has a task already.
    fn enter(
        &self,
        dispatch: &Dispatch,
    ) -> Option<(watch::Receiver<Option<StopReason>>, CancellationToken)> {
        let mut live = self.lock();
        let place = (dispatch.run, dispatch.fence);
        if live.contains_key(&place) {
            return None;
        }
        let (stop, stopped) = watch::channel(None);
        let over = CancellationToken::new();
        let entry = Live {
            stop: Arc::new(stop),
            over: over.clone(),
        };
        live.insert(place, entry);
        Some((stopped, over))
    }

    fn leave(&self, dispatch: &Dispatch) {
        self.lock().remove(&(dispatch.run, dispatch.fence));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(RunId, Fence), Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins an attempt. Repeating it does nothing, and neither does a dispatch that the run has moved past.
pub(crate) async fn begin(plane: &Arc<Plane>, dispatch: Dispatch) -> Result<(), EffectError> {
    if !plane.is_current(dispatch.run, dispatch.fence).await? {
        return Ok(());
    }
    let Some((stopped, over)) = plane.phases.enter(&dispatch) else {
        return Ok(());
    };
    let plane = Arc::clone(plane);
    let tasks = plane.tasks.clone();
    tasks.spawn(async move {
        let _over = over.drop_guard();
        task::perform(&plane, &dispatch, stopped).await;
        plane.phases.leave(&dispatch);
    });
    Ok(())
}

/// Sees to it that nothing of an attempt lives, and that its run hears of its end.
pub(crate) async fn stop(
    plane: &Arc<Plane>,
    run: RunId,
    phase: &PhaseName,
    fence: Fence,
) -> Result<(), EffectError> {
    if let Some(over) = plane.phases.stop(run, fence, StopReason::Cancelled) {
        return match tokio::time::timeout(STOP_PATIENCE, over.cancelled()).await {
            Ok(()) => Ok(()),
            Err(_elapsed) => Err(EffectError::Later(format!(
                "phase {phase} of run {run} has not ended yet"
            ))),
        };
    }
    if !plane.is_current(run, fence).await? {
        return Ok(());
    }
    // No task has it, so nothing of it lives: say so in its place.
    let ended = RunEvent::PhaseEnded {
        fence,
        result: PhaseEnd::Failed(Failure::Ended {
            reason: EndReason::Cancelled,
        }),
        head: settle::branch_tip(plane, run)
            .await
            .map_err(EffectError::Later)?,
        spent: Spent::default(),
    };
    drop(plane.post_fact(run, &ended, "server").await);
    Ok(())
}
