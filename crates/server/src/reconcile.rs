//! The reconciler: whatever must end up true is made true here (cases 6, 25; R13, R14). It takes no input, does
//! the same at every start and on a timer, and may be interrupted anywhere.
//!
//! | found | done |
//! |---|---|
//! | a run that was made and not started | its branch is made, it is started |
//! | an attempt in flight without a task in this process | its push is compared with the branch: a push that landed and completes the phase makes it done, or it is dispatched again |
//! | a lease that ran out | the attempt is told to end, and counts as lost |
//! | a gate past its time | it expires |
//! | a run over its cap on time | its attempt is stopped |

use std::{sync::Arc, time::Duration};

use bulkhead_model::{
    Fence,
    run::{Action, Attempt, Cap, CapKind, CapScope, PhaseState, Run, RunEvent, Spent, Status},
};
use bulkhead_runner::StopReason;
use bulkhead_store::PhaseKey;

use crate::{
    create, notify,
    phase::{branch_tip, settle_push},
    plane::Plane,
    problem::chain,
};

/// How often the timer looks.
const EVERY: Duration = Duration::from_secs(1);

/// What a run of the reconciler did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done {
    pub(crate) dispatched_again: Vec<String>,
    pub(crate) completed: Vec<String>,
}

/// Whether attempts without a task are known to be dead, because this process has only just begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Start,
    Timer,
}

pub(crate) async fn on_timer(plane: Arc<Plane>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = plane.closing.cancelled() => return,
        }
        if let Err(error) = once(&plane, When::Timer).await {
            tracing::error!(error, "reconciling failed; trying again");
        }
    }
}

pub(crate) async fn once(plane: &Arc<Plane>, when: When) -> Result<Done, String> {
    let mut done = Done::default();
    let runs = plane
        .store
        .live_runs()
        .await
        .map_err(|error| chain(&error))?;
    for run in runs {
        // One run that cannot be mended must not keep the others from it.
        if let Err(error) = mend(plane, &run, when, &mut done).await {
            tracing::warn!(run = %run.id, error, "a run cannot be mended yet");
        }
    }
    Ok(done)
}

async fn mend(plane: &Arc<Plane>, run: &Run, when: When, done: &mut Done) -> Result<(), String> {
    if run.status == Status::Created {
        return create::start(plane, run.id)
            .await
            .map_err(|error| error.to_string());
    }
    if let Some((index, attempt)) = run.in_flight() {
        let key = PhaseKey {
            run: run.id,
            phase: run.plan.phases()[index].name.clone(),
            attempt: attempt.attempt,
        };
        let is_claimed = matches!(run.phases[index].state, PhaseState::Running(_));
        return in_flight(plane, run, &key, attempt, is_claimed, when, done).await;
    }
    if let (When::Start, Some((_, gate))) = (when, run.open_gate()) {
        let again = notify::begin_again(plane, run.id, gate.id).await;
        again.map_err(|error| chain(&error))?;
    }
    expire_gate(plane, run).await
}

async fn in_flight(
    plane: &Arc<Plane>,
    run: &Run,
    key: &PhaseKey,
    attempt: &Attempt,
    is_claimed: bool,
    when: When,
    done: &mut Done,
) -> Result<(), String> {
    let fence = attempt.fence;
    if plane.phases.has(run.id, fence) {
        over_time(plane, run, attempt).await;
        return lease_ran_out(plane, run, fence).await;
    }
    if when == When::Timer && !is_abandoned(plane, run, fence, is_claimed).await? {
        return Ok(());
    }
    plane.fail_point("reconcile.before_settle");
    let completed = settle_push(plane, key).await?;
    let event = match completed {
        Some(head) if is_claimed => {
            done.completed.push(key.to_string());
            RunEvent::PushConfirmed {
                fence,
                head,
                spent: Spent::default(),
            }
        }
        _ => {
            done.dispatched_again.push(key.to_string());
            let head = branch_tip(plane, run.id).await?;
            RunEvent::Restarted { fence, head }
        }
    };
    // What it had said until then is whole; the log says that its writer was killed.
    drop(plane.logs.recover(key, plane.now_ms()).await);
    plane
        .store
        .revoke_phase_tokens(key, plane.now_ms())
        .await
        .map_err(|error| chain(&error))?;
    match plane.post(run.id, &event, "reconciler").await {
        Ok(_) => Ok(()),
        Err(error) => Err(chain(&error)),
    }
}

/// While this process works, an attempt without a task is abandoned when nothing can make it one any more: no
/// open effect, and no lease that holds.
async fn is_abandoned(
    plane: &Plane,
    run: &Run,
    fence: Fence,
    is_claimed: bool,
) -> Result<bool, String> {
    let resource = bulkhead_store::leases::Resource::run(run.id);
    if is_claimed {
        let held = plane
            .store
            .check_fence(&resource, fence, plane.now_ms())
            .await;
        return Ok(held.is_err());
    }
    let pending = plane
        .store
        .pending_effects(Some(run.id))
        .await
        .map_err(|error| chain(&error))?;
    let is_open = pending.iter().any(|effect| {
        matches!(effect.effect.action, Action::Dispatch { .. }) && effect.given_up_at_ms.is_none()
    });
    // The task enters before the effect is done, and leaves after the run has moved on: read that again.
    let is_current = plane
        .is_current(run.id, fence)
        .await
        .map_err(|error| chain(&error))?;
    Ok(!is_open && is_current && !plane.phases.has(run.id, fence))
}

/// The lease of an attempt that has a task ran out: its holder was stopped or cut off. The task ends the attempt
/// and says how; until then every write of it is refused by its fence.
async fn lease_ran_out(plane: &Plane, run: &Run, fence: Fence) -> Result<(), String> {
    let expired = plane
        .store
        .expired_leases(plane.now_ms())
        .await
        .map_err(|error| chain(&error))?;
    let resource = bulkhead_store::leases::Resource::run(run.id);
    if expired
        .iter()
        .any(|lease| lease.resource == resource && lease.fence == fence)
    {
        plane.phases.stop(run.id, fence, StopReason::LeaseLost);
    }
    Ok(())
}

/// A cap on the time of the whole run counts while an attempt is in flight.
async fn over_time(plane: &Plane, run: &Run, attempt: &Attempt) {
    let Some(cap_ms) = run.plan.caps.time_ms else {
        return;
    };
    let since = attempt.started_ms.unwrap_or(attempt.dispatched_ms);
    let running_ms = u64::try_from(plane.now_ms().saturating_sub(since)).unwrap_or(0);
    if attempt.over.is_none() && run.spent.time_ms.saturating_add(running_ms) >= cap_ms {
        let cap = Cap {
            scope: CapScope::Run,
            kind: CapKind::Time,
        };
        let event = RunEvent::CapReached {
            fence: attempt.fence,
            cap,
        };
        drop(plane.post(run.id, &event, "timer").await);
    }
}

async fn expire_gate(plane: &Plane, run: &Run) -> Result<(), String> {
    let Some((_, gate)) = run.open_gate() else {
        return Ok(());
    };
    let is_over = gate
        .expires_ms
        .is_some_and(|expires_ms| expires_ms <= plane.now_ms());
    if is_over && !matches!(run.status, Status::Paused { .. }) {
        let event = RunEvent::GateExpired { gate: gate.id };
        plane
            .post(run.id, &event, "timer")
            .await
            .map_err(|error| chain(&error))?;
    }
    Ok(())
}
