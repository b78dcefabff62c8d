//! The end of an attempt: nothing of it may push any more, the branch is read, the run is told.

use std::time::Duration;

use bulkhead_git::{Push as GitPush, Recovery, Repository};
use bulkhead_model::{
    CommitId, EndReason, RunId,
    compose::Completion,
    run::{Failure, PhaseEnd, RunEvent, Spent},
};
use bulkhead_runner::{FailureKind, PhaseReport};
use bulkhead_store::{
    PhaseKey,
    pushes::{Push, PushEnd, PushState},
};

use super::Dispatch;
use crate::{backoff::Backoff, ledger, plane::Plane, problem::chain};

/// How long a push that is being forwarded may take after its phase ended.
const PUSH_PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct End {
    pub(super) result: PhaseEnd,
    pub(super) spent: Spent,
}

/// Revokes the token, settles the push, reads the branch and tells the run. Tried until it is done or this
/// process closes; what is left then is done at the next start.
pub(super) async fn end(plane: &Plane, dispatch: &Dispatch, end: End) {
    let key = dispatch.held().key;
    let revoked = plane
        .until_stored("revoking a phase's token", || {
            let key = &key;
            Box::pin(async move { plane.store.revoke_phase_tokens(key, plane.now_ms()).await })
        })
        .await;
    plane.fail_point("token.revoked");
    let Some((completed, head)) = where_it_stands(plane, &key)
        .await
        .filter(|_| revoked.is_some())
    else {
        return;
    };
    plane.fail_point("branch.read");
    let event = event(dispatch, end, completed, head);
    if let Some(Err(refused)) = plane.post_fact(dispatch.run, &event, "executor").await {
        tracing::info!(run = %dispatch.run, %refused, "the end of an attempt came too late");
    }
}

/// One push completes a phase: where it landed, the loss of what came after it changes nothing (R14).
fn event(
    dispatch: &Dispatch,
    end: End,
    completed: Option<CommitId>,
    head: Option<CommitId>,
) -> RunEvent {
    let fence = dispatch.fence;
    let cancelled = PhaseEnd::Failed(Failure::Ended {
        reason: EndReason::Cancelled,
    });
    match completed {
        Some(head) if end.result != PhaseEnd::Succeeded && end.result != cancelled => {
            RunEvent::PushConfirmed {
                fence,
                head,
                spent: end.spent,
            }
        }
        _ => RunEvent::PhaseEnded {
            fence,
            result: end.result,
            head,
            spent: end.spent,
        },
    }
}

/// The commit by which the attempt completed its phase, and the branch itself. None while closing.
async fn where_it_stands(
    plane: &Plane,
    key: &PhaseKey,
) -> Option<(Option<CommitId>, Option<CommitId>)> {
    let mut backoff = Backoff::new();
    loop {
        match stands(plane, key).await {
            Ok(stands) => return Some(stands),
            Err(error) => tracing::warn!(%key, error, "cannot read the branch yet; trying again"),
        }
        tokio::select! {
            () = backoff.pause() => {}
            () = plane.closing.cancelled() => return None,
        }
    }
}

async fn stands(
    plane: &Plane,
    key: &PhaseKey,
) -> Result<(Option<CommitId>, Option<CommitId>), String> {
    wait_for_push(plane, key).await?;
    let completed = settle_push(plane, key).await?;
    let head = branch_tip(plane, key.run).await?;
    Ok((completed, head))
}

/// A push that the gateway is just forwarding is given time to come to its own end.
async fn wait_for_push(plane: &Plane, key: &PhaseKey) -> Result<(), String> {
    let mut changes = plane.store.changes();
    let finished = async {
        loop {
            let open = plane
                .store
                .push_of(key)
                .await
                .map_err(|error| chain(&error))?;
            if open.is_none_or(|push| push.state != PushState::Recorded) {
                return Ok(());
            }
            if changes.changed().await.is_err() {
                return Ok(());
            }
        }
    };
    tokio::time::timeout(PUSH_PATIENCE, finished)
        .await
        .unwrap_or(Ok(()))
}

/// Finishes an open push of the attempt by what the branch says, and returns the commit that landed and
/// completes the phase (R14). A push that an agent made on the way by itself completes nothing.
pub(crate) async fn settle_push(plane: &Plane, key: &PhaseKey) -> Result<Option<CommitId>, String> {
    let push = plane
        .store
        .push_of(key)
        .await
        .map_err(|error| chain(&error))?;
    let Some(push) = push else { return Ok(None) };
    let repository = plane
        .repos
        .of_run(plane, key.run)
        .await
        .map_err(|error| error.to_string())?
        .ok_or_else(|| "the run has no repository".to_owned())?;
    match settle(plane, &repository, push).await? {
        Some(landed) if is_completion(&repository, key, &landed).await? => Ok(Some(landed)),
        _ => Ok(None),
    }
}

async fn is_completion(
    repository: &Repository,
    key: &PhaseKey,
    landed: &CommitId,
) -> Result<bool, String> {
    let commit = ledger::oid(landed).map_err(|error| chain(&error))?;
    let message = repository
        .commit_message(&commit)
        .await
        .map_err(|error| chain(&error))?;
    let completion = Completion {
        run: key.run,
        phase: key.phase.clone(),
        attempt: key.attempt,
    };
    Ok(message.is_some_and(|message| completion.is_in(&message)))
}

/// The commit that the push put on the branch; none where it did not land.
async fn settle(
    plane: &Plane,
    repository: &Repository,
    push: Push,
) -> Result<Option<CommitId>, String> {
    if push.state == PushState::Done {
        return Ok(Some(push.update.new));
    }
    let asked: GitPush = ledger::git_push(&push).map_err(|error| chain(&error))?;
    let found = repository
        .recover(&asked)
        .await
        .map_err(|error| chain(&error))?;
    let end = match found {
        Recovery::Landed => PushEnd::Done,
        Recovery::NotLanded => PushEnd::Void,
        Recovery::Foreign { at } => {
            tracing::warn!(%push.held, ?at, "somebody else moved a run's branch");
            PushEnd::Void
        }
    };
    plane.fail_point("push.before_settle");
    let finished = plane.store.finish_push(push.id, end, plane.now_ms()).await;
    finished.map_err(|error| chain(&error))?;
    plane.fail_point("push.after_settle");
    Ok((end == PushEnd::Done).then_some(push.update.new))
}

/// The run's branch as it really is; none without a repository or a branch.
pub(crate) async fn branch_tip(plane: &Plane, run: RunId) -> Result<Option<CommitId>, String> {
    let spec = plane.spec(run).await.map_err(|error| chain(&error))?;
    let Some(repo) = spec.repo else {
        return Ok(None);
    };
    let repository = plane
        .repos
        .open(plane, &repo.source)
        .await
        .map_err(|error| error.to_string())?;
    let tip = repository
        .authoritative_tip(&repo.branch)
        .await
        .map_err(|error| chain(&error))?;
    tip.map(|tip| ledger::commit(&tip))
        .transpose()
        .map_err(|error| chain(&error))
}

pub(super) fn result_of(report: &PhaseReport) -> PhaseEnd {
    let Some(failure) = &report.failure else {
        return PhaseEnd::Succeeded;
    };
    let why = failure.message.clone();
    let reason = report.outcome.as_ref().map(|outcome| outcome.reason);
    PhaseEnd::Failed(match (failure.kind, reason) {
        (FailureKind::Refused, _) => Failure::Refused { why },
        (FailureKind::Lost, _) => Failure::Lost,
        (FailureKind::Cancelled, _) => Failure::Ended {
            reason: EndReason::Cancelled,
        },
        (_, Some(reason)) if !reason.is_success() => Failure::Ended { reason },
        (FailureKind::Limit, _) => Failure::Agent { why },
        (FailureKind::Failed, _) => Failure::Workspace { why },
    })
}

pub(super) fn spent(report: &PhaseReport, took_ms: i64) -> Spent {
    let usage = &report.usage;
    Spent {
        cost_micro_usd: micro_usd(usage.cost_usd.unwrap_or(0.0)),
        turns: u64::from(usage.turns),
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        time_ms: u64::try_from(took_ms).unwrap_or(0),
    }
}

/// What an agent reports may be any number; a negative one, or none at all, counts as nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what fits, and a fraction of a millionth does not matter"
)]
pub(super) fn micro_usd(usd: f64) -> u64 {
    (usd * 1e6).clamp(0.0, 1e15) as u64
}
