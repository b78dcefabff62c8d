//! Where everything that an attempt says goes: masked, stored, refused once its fence is stale.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bulkhead_model::{
    AgentEvent, ArtifactName, PhaseEvent, Stage, Stream, Usage,
    run::{Cap, CapKind, CapScope, Failure, RunCaps, RunEvent, Spent},
};
use bulkhead_runner::{ArtifactChunk, PhaseReport, PhaseSink, SinkError};
use bulkhead_store::{
    Error as StoreError, Held,
    artifacts::{ArtifactWriter, DEFAULT_MAX_ARTIFACT_BYTES},
    events::NewEvent,
    leases::{Lease, Resource},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use super::{
    Dispatch,
    order::{Prepared, refused},
    settle::micro_usd,
};
use crate::{
    backoff::Backoff,
    clock::now_ms,
    plane::{HOLDER, Plane, is_transient},
    problem::chain,
};

/// How long a sink tries to store something before it gives the phase up.
const STORE_PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct StoreSink {
    plane: Arc<Plane>,
    held: Held,
    asked: Instant,
    caps: Caps,
    artifacts: Mutex<HashMap<ArtifactName, ArtifactWriter>>,
}

/// The caps that live usage is held against.
struct Caps {
    run: RunCaps,
    /// What the run had used before this attempt.
    before: Spent,
}

impl StoreSink {
    pub(super) async fn open(
        plane: &Arc<Plane>,
        dispatch: &Dispatch,
        _prepared: &Prepared,
        asked: Instant,
    ) -> Result<Arc<Self>, Failure> {
        let run = plane
            .store
            .run(dispatch.run)
            .await
            .map_err(|error| refused(&error))?;
        Ok(Arc::new(Self {
            plane: Arc::clone(plane),
            held: dispatch.held(),
            asked,
            caps: Caps {
                run: run.plan.caps,
                before: run.spent,
            },
            artifacts: Mutex::default(),
        }))
    }

    /// The attempt says nothing more.
    pub(super) async fn close(&self, report: &PhaseReport) {
        // Artifacts that were not finished are dropped, and their files with them.
        self.artifacts.lock().await.clear();
        tracing::debug!(held = %self.held, dropped = report.dropped_log_bytes, "an attempt said its last");
    }

    /// Tries what may only be failing for a while (a full disk, a busy database) again.
    async fn stored<'a, T>(
        &self,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, SinkError> {
        let deadline = Instant::now() + STORE_PATIENCE;
        let mut backoff = Backoff::new();
        loop {
            match attempt().await {
                Ok(value) => return Ok(value),
                Err(StoreError::Stale { .. }) => return Err(SinkError::Stale),
                Err(error) if is_transient(&error) && Instant::now() < deadline => {
                    tracing::warn!(held = %self.held, error = chain(&error), "cannot store what a phase said yet");
                    backoff.pause().await;
                }
                Err(error) => return Err(SinkError::Store(Box::new(error))),
            }
        }
    }

    async fn note_start(&self) {
        let started = RunEvent::Started {
            fence: self.held.fence,
        };
        if let Err(error) = self
            .plane
            .post(self.held.key.run, &started, "executor")
            .await
        {
            tracing::debug!(held = %self.held, error = chain(&error), "cannot note that an agent runs");
        }
    }

    async fn check_caps(&self, usage: &Usage) {
        let Some(cap) = self.caps.reached(usage) else {
            return;
        };
        let event = RunEvent::CapReached {
            fence: self.held.fence,
            cap,
        };
        if let Err(error) = self.plane.post(self.held.key.run, &event, "executor").await {
            tracing::debug!(held = %self.held, error = chain(&error), "a cap was reached too late");
        }
    }
}

impl Caps {
    /// The cap of the run that live usage goes over; the phase's own are the session's to keep.
    fn reached(&self, usage: &Usage) -> Option<Cap> {
        let turns = self.before.turns.saturating_add(u64::from(usage.turns));
        let cost = self
            .before
            .cost_micro_usd
            .saturating_add(micro_usd(usage.cost_usd.unwrap_or(0.0)));
        let kind = if self.run.cost_micro_usd.is_some_and(|cap| cost > cap) {
            CapKind::Cost
        } else if self.run.turns.is_some_and(|cap| turns > cap) {
            CapKind::Turns
        } else {
            return None;
        };
        Some(Cap {
            scope: CapScope::Run,
            kind,
        })
    }
}

#[async_trait]
impl PhaseSink for StoreSink {
    async fn event(&self, event: PhaseEvent) -> Result<(), SinkError> {
        let payload =
            serde_json::to_value(&event).map_err(|error| SinkError::Store(Box::new(error)))?;
        let kept = NewEvent {
            kind: kind(&event).to_owned(),
            at_ms: now_ms(),
            payload,
        };
        self.plane.fail_point("event.before_storing");
        self.stored(|| {
            let kept = std::slice::from_ref(&kept);
            Box::pin(async move {
                self.plane
                    .store
                    .append_events(&self.held, kept, now_ms())
                    .await
            })
        })
        .await?;
        self.plane.fail_point("event.after_storing");
        match &event {
            PhaseEvent::Stage {
                stage: Stage::AgentStarted,
                ..
            } => self.note_start().await,
            PhaseEvent::Agent {
                event: AgentEvent::Usage { total },
            } => self.check_caps(total).await,
            _ => {}
        }
        Ok(())
    }

    async fn log(&self, _stream: Stream, _bytes: Bytes) -> Result<(), SinkError> {
        Ok(())
    }

    async fn artifact(&self, chunk: ArtifactChunk) -> Result<(), SinkError> {
        let mut open = self.artifacts.lock().await;
        let mut writer = match open.remove(&chunk.name) {
            Some(writer) => writer,
            None => {
                self.stored(|| Box::pin(self.plane.store.new_artifact(DEFAULT_MAX_ARTIFACT_BYTES)))
                    .await?
            }
        };
        let failed = |error: StoreError| match error {
            StoreError::Stale { .. } => SinkError::Stale,
            error => SinkError::Store(Box::new(error)),
        };
        writer.write(&chunk.data).await.map_err(failed)?;
        if !chunk.last {
            open.insert(chunk.name, writer);
            return Ok(());
        }
        self.plane.fail_point("artifact.before_keeping");
        writer
            .finish(&self.held, &chunk.name, now_ms())
            .await
            .map_err(failed)?;
        self.plane.fail_point("artifact.after_keeping");
        Ok(())
    }

    async fn renew(&self) -> Result<(), SinkError> {
        let now = now_ms();
        let lease = Lease {
            resource: Resource::run(self.held.key.run),
            holder: HOLDER.to_owned(),
            fence: self.held.fence,
            expires_at_ms: now,
        };
        let ttl_ms = i64::try_from(self.lease_ttl().as_millis()).unwrap_or(i64::MAX);
        match self.plane.store.renew_lease(&lease, ttl_ms, now).await {
            Ok(_) => Ok(()),
            Err(StoreError::Stale { .. }) => Err(SinkError::Stale),
            Err(error) => Err(SinkError::Store(Box::new(error))),
        }
    }

    fn lease_ttl(&self) -> Duration {
        self.plane.config.lease_ttl
    }

    fn lease_asked(&self) -> Instant {
        self.asked
    }
}

const fn kind(event: &PhaseEvent) -> &'static str {
    match event {
        PhaseEvent::Stage { .. } => "stage",
        PhaseEvent::Agent { .. } => "agent",
        PhaseEvent::Egress { .. } => "egress",
        PhaseEvent::Ended { .. } => "ended",
    }
}
