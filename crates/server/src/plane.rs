//! The parts of the control plane, shared by its tasks.

use std::sync::Arc;

use bulkhead_egress::{Egress, Tls};
use bulkhead_model::{
    ArtifactName, Fence, RunId,
    run::{Refused, Run, RunEvent},
};
use bulkhead_runner::{ArtifactKind, Executor};
use bulkhead_store::{
    Error as StoreError, Store,
    logs::LogStore,
    runs::{ApplyError, Expected, Move},
};
use futures::future::BoxFuture;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Config, backoff::Backoff, phase::Phases, problem::chain, repos::Repos, spec::RunSpec};

pub(crate) struct Plane {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) logs: Arc<dyn LogStore>,
    pub(crate) repos: Repos,
    pub(crate) egress: Egress,
    pub(crate) tls: Tls,
    pub(crate) phases: Phases,
    /// Owns every task of the control plane.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when no new work is taken any more.
    pub(crate) closing: CancellationToken,
}

/// The one holder of leases in this data directory, whose lock sees to it that there is only one.
pub(crate) const HOLDER: &str = "server";

impl Plane {
    /// The time, as it is stored and compared.
    pub(crate) fn now_ms(&self) -> i64 {
        self.config.clock.now_ms()
    }

    /// A place where a crash test may end this process.
    pub(crate) fn fail_point(&self, name: &'static str) {
        self.config.fail_points.hit(name);
    }

    /// Works one event into a run. The store's one writer is the queue in which all events stand.
    pub(crate) async fn post(
        &self,
        run: RunId,
        event: &RunEvent,
        actor: &str,
    ) -> Result<Run, ApplyError> {
        let (before, after) = points(event);
        self.fail_point(before);
        let change = Move {
            run,
            expected: Expected::Current,
            event,
            actor,
            now_ms: self.now_ms(),
        };
        let moved = self.store.apply(change).await?;
        self.fail_point(after);
        tracing::debug!(%run, kind = after, "worked in an event");
        Ok(moved.into_run())
    }

    /// Works in something that has happened and must not be forgotten: tried until the store takes it, the
    /// run refuses it, or this process stops working. None where it stopped.
    pub(crate) async fn post_fact(
        &self,
        run: RunId,
        event: &RunEvent,
        actor: &str,
    ) -> Option<Result<Run, Refused>> {
        self.until_stored("recording what happened to a run", || {
            Box::pin(async move {
                match self.post(run, event, actor).await {
                    Ok(run) => Ok(Ok(run)),
                    Err(ApplyError::Refused(refused)) => Ok(Err(refused)),
                    Err(ApplyError::Store(error)) => Err(error),
                }
            })
        })
        .await
    }

    /// Repeats what the store could not do (its disk is full, say) until it can, or this process is closing.
    pub(crate) async fn until_stored<'a, T>(
        &self,
        doing: &str,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Option<T> {
        let mut backoff = Backoff::new();
        loop {
            match attempt().await {
                Ok(value) => return Some(value),
                Err(error) if is_transient(&error) => {
                    tracing::error!(error = chain(&error), "{doing} failed; trying again");
                }
                Err(error) => {
                    tracing::error!(error = chain(&error), "{doing} failed for good");
                    return None;
                }
            }
            tokio::select! {
                () = backoff.pause() => {}
                () = self.closing.cancelled() => return None,
            }
        }
    }

    /// What the run was started with.
    pub(crate) async fn spec(&self, run: RunId) -> Result<RunSpec, StoreError> {
        self.store.run_spec(run).await
    }

    /// What an artifact is, which its bytes do not say.
    pub(crate) async fn artifact_kind(
        &self,
        run: RunId,
        name: &ArtifactName,
    ) -> Option<ArtifactKind> {
        let noted = self.store.setting(&artifact_note(run, name)).await;
        noted.ok().flatten()
    }

    pub(crate) async fn note_artifact_kind(
        &self,
        run: RunId,
        name: &ArtifactName,
        kind: ArtifactKind,
    ) -> Result<(), StoreError> {
        self.store
            .set_setting(&artifact_note(run, name), &kind, self.now_ms())
            .await
    }

    /// The run's attempt in flight is still the one with this fence.
    pub(crate) async fn is_current(&self, run: RunId, fence: Fence) -> Result<bool, StoreError> {
        let run = self.store.run(run).await?;
        Ok(run
            .in_flight()
            .is_some_and(|(_, attempt)| attempt.fence == fence))
    }
}

/// The run's id in the middle makes it go with its run.
fn artifact_note(run: RunId, name: &ArtifactName) -> String {
    format!("artifact-kind/{run}/{name}")
}

/// Whether the same call may succeed later.
pub(crate) fn is_transient(error: &StoreError) -> bool {
    matches!(error, StoreError::Database { .. } | StoreError::File { .. })
}

/// The fail points around the commit of an event.
const fn points(event: &RunEvent) -> (&'static str, &'static str) {
    match event {
        RunEvent::Start { .. } => ("start.before_commit", "start.after_commit"),
        RunEvent::Claimed { .. } => ("claimed.before_commit", "claimed.after_commit"),
        RunEvent::Started { .. } => ("started.before_commit", "started.after_commit"),
        RunEvent::PhaseEnded { .. } => ("ended.before_commit", "ended.after_commit"),
        RunEvent::PushConfirmed { .. } => ("confirmed.before_commit", "confirmed.after_commit"),
        RunEvent::Restarted { .. } => ("restarted.before_commit", "restarted.after_commit"),
        RunEvent::Decision(_) => ("decision.before_commit", "decision.after_commit"),
        _ => ("other.before_commit", "other.after_commit"),
    }
}
