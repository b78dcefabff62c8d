//! What the git gateway asks of the store: who holds this token, and may this push happen (R6, R14).

use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_git::{
    Access, InvalidName, LedgerError, Oid, PhaseAuth, PhaseGrant, Push as GitPush, PushLedger,
    Recorded, RefName,
};
use bulkhead_model::{CommitId, ids::InvalidId, run::Refused};
use bulkhead_store::{
    Error as StoreError, Held, PhaseKey,
    pushes::{Push, PushEnd, RecordedPush, RefUpdate},
    runs::ApplyError,
};
use secrecy::SecretString;

use crate::plane::Plane;

pub(crate) struct Ledger(pub(crate) Arc<Plane>);

#[async_trait]
impl PhaseAuth for Ledger {
    async fn access(&self, token: &SecretString) -> Result<Option<Access>, LedgerError> {
        let grant = self
            .0
            .store
            .phase_grant(token, self.0.now_ms())
            .await
            .map_err(unavailable)?;
        let Some((held, Some(branch))) = grant.map(|grant| (grant.held, grant.branch)) else {
            return Ok(None);
        };
        let branch: RefName = branch.parse().map_err(unavailable)?;
        let served = self
            .0
            .repos
            .served(&self.0, held.key.run)
            .await
            .map_err(unavailable)?;
        Ok(served.map(|repo| Access {
            grant: PhaseGrant {
                run: held.key.run,
                phase: held.key.phase,
                attempt: held.key.attempt,
                fence: held.fence,
                branch,
            },
            repo,
        }))
    }
}

#[async_trait]
impl PushLedger for Ledger {
    async fn record(&self, push: &GitPush) -> Result<Recorded, LedgerError> {
        let plane = &self.0;
        plane.fail_point("push.before_record");
        let update = RefUpdate {
            ref_name: push.grant.branch.to_string(),
            old: (!push.old.is_zero())
                .then(|| commit(&push.old))
                .transpose()
                .map_err(unavailable)?,
            new: commit(&push.new).map_err(unavailable)?,
        };
        let recorded = plane
            .store
            .record_push(&held(&push.grant), &update, plane.now_ms())
            .await;
        plane.fail_point("push.after_record");
        match recorded {
            Ok(RecordedPush::New(_)) => Ok(Recorded::New),
            Ok(RecordedPush::Repeat(_)) => Ok(Recorded::Repeat),
            Ok(RecordedPush::AlreadyPushed { new }) => Err(LedgerError::AlreadyPushed {
                new: oid(&new).map_err(unavailable)?,
            }),
            Err(error) => Err(refusal(push, error)),
        }
    }

    async fn done(&self, push: &GitPush) -> Result<(), LedgerError> {
        let plane = &self.0;
        plane.fail_point("push.before_done");
        let recorded = plane
            .store
            .push_of(&held(&push.grant).key)
            .await
            .map_err(unavailable)?;
        let recorded = recorded.ok_or(LedgerError::Ended)?;
        let done = plane
            .store
            .finish_push(recorded.id, PushEnd::Done, plane.now_ms())
            .await;
        plane.fail_point("push.after_done");
        done.map_err(unavailable)
    }
}

/// A stored push as the git gateway knows it.
pub(crate) fn git_push(push: &Push) -> Result<GitPush, InvalidName> {
    let new = oid(&push.update.new)?;
    let zero = || "0".repeat(new.as_str().len()).parse();
    let old = push.update.old.as_ref().map_or_else(zero, oid)?;
    let key = &push.held.key;
    Ok(GitPush {
        grant: PhaseGrant {
            run: key.run,
            phase: key.phase.clone(),
            attempt: key.attempt,
            fence: push.held.fence,
            branch: push.update.ref_name.parse()?,
        },
        old,
        new,
    })
}

pub(crate) fn commit(oid: &Oid) -> Result<CommitId, InvalidId> {
    oid.as_str().parse()
}

pub(crate) fn oid(commit: &CommitId) -> Result<Oid, InvalidName> {
    commit.as_str().parse()
}

fn held(grant: &PhaseGrant) -> Held {
    Held {
        key: PhaseKey {
            run: grant.run,
            phase: grant.phase.clone(),
            attempt: grant.attempt,
        },
        fence: grant.fence,
    }
}

fn refusal(push: &GitPush, error: ApplyError) -> LedgerError {
    match error {
        ApplyError::Refused(Refused::StaleFence {
            shown,
            current: Some(current),
        }) => LedgerError::StaleFence { shown, current },
        ApplyError::Store(StoreError::Stale { .. }) | ApplyError::Refused(_) => {
            tracing::info!(run = %push.grant.run, phase = %push.grant.phase, %error, "a push was refused");
            LedgerError::Ended
        }
        ApplyError::Store(error) => unavailable(error),
    }
}

fn unavailable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LedgerError {
    LedgerError::Unavailable(error.into())
}
