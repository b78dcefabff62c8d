//! Where everything that an attempt says goes: masked, stored, refused once its fence is stale.

mod caps;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bulkhead_model::{
    AgentEvent, ArtifactName, PhaseEvent, Stage, Stream, Usage,
    run::{Failure, RunEvent},
};
use bulkhead_runner::{ArtifactChunk, PhaseReport, PhaseSink, SinkError};
use bulkhead_store::{
    Error as StoreError, Held,
    artifacts::{ArtifactWriter, DEFAULT_MAX_ARTIFACT_BYTES},
    events::NewEvent,
    leases::{Lease, Resource},
    logs::{LogError, LogSink, SinkConfig},
    mask::{EventMasker, Masker},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use self::caps::Caps;
use super::{
    Dispatch,
    order::{Prepared, refused},
};
use crate::{
    backoff::Backoff,
    plane::{HOLDER, Plane, is_transient},
    problem::chain,
};

/// How long a sink tries to store something before it gives the phase up.
const STORE_PATIENCE: Duration = Duration::from_secs(60);
/// How often output that waits for a failing disk is tried again.
const TICK: Duration = Duration::from_millis(500);

pub(super) struct StoreSink {
    plane: Arc<Plane>,
    held: Held,
    asked: Instant,
    caps: Caps,
    log: Mutex<LogSink>,
    mask: Mutex<EventMasker>,
    artifacts: Mutex<HashMap<ArtifactName, ArtifactWriter>>,
}

impl StoreSink {
    pub(super) async fn open(
        plane: &Arc<Plane>,
        dispatch: &Dispatch,
        prepared: &Prepared,
        asked: Instant,
    ) -> Result<Arc<Self>, Failure> {
        let run = plane
            .store
            .run(dispatch.run)
            .await
            .map_err(|error| refused(&error))?;
        let masker = masker(prepared)?;
        let held = dispatch.held();
        let config = SinkConfig {
            keep_bytes: prepared.order.limits.log_bytes,
            ..SinkConfig::default()
        };
        let logs = Arc::clone(&plane.logs);
        let log = plane
            .store
            .open_log(logs, &held, &masker, config, plane.now_ms())
            .await;
        Ok(Arc::new(Self {
            plane: Arc::clone(plane),
            held,
            asked,
            caps: Caps::of(&run),
            log: Mutex::new(log.map_err(|error| refused(&error))?),
            mask: Mutex::new(EventMasker::new(masker)),
            artifacts: Mutex::default(),
        }))
    }

    /// Tries what waits for a failing disk again, for as long as the attempt lives. Never returns.
    pub(super) async fn tick(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(TICK).await;
            // A stale fence shows at the next write.
            drop(self.log.lock().await.tick(self.plane.now_ms()).await);
        }
    }

    /// The attempt says nothing more.
    pub(super) async fn close(&self, report: &PhaseReport) {
        // Artifacts that were not finished are dropped, and their files with them.
        self.artifacts.lock().await.clear();
        if let Some(failure) = &report.failure {
            let words = format!("bulkhead: the phase did not succeed: {failure}\n");
            drop(self.log(Stream::System, words.into()).await);
        }
        let rest = self.mask.lock().await.finish();
        for event in rest {
            drop(self.keep(event).await);
        }
        let finished = self.log.lock().await.finish(self.plane.now_ms()).await;
        if let Err(error) = finished {
            tracing::warn!(held = %self.held, error = chain(&error), "the end of a log could not be written");
        }
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

    /// Stores one masked event.
    async fn keep(&self, event: PhaseEvent) -> Result<(), SinkError> {
        let payload = serde_json::to_value(&event);
        let kept = NewEvent {
            kind: kind(&event).to_owned(),
            at_ms: self.plane.now_ms(),
            payload: payload.map_err(|error| SinkError::Store(Box::new(error)))?,
        };
        self.plane.fail_point("event.before_storing");
        self.stored(|| {
            let kept = std::slice::from_ref(&kept);
            Box::pin(async move {
                self.plane
                    .store
                    .append_events(&self.held, kept, self.plane.now_ms())
                    .await
            })
        })
        .await?;
        self.plane.fail_point("event.after_storing");
        Ok(())
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

#[async_trait]
impl PhaseSink for StoreSink {
    async fn event(&self, event: PhaseEvent) -> Result<(), SinkError> {
        let is_start = matches!(
            event,
            PhaseEvent::Stage {
                stage: Stage::AgentStarted,
                ..
            }
        );
        let usage = match &event {
            PhaseEvent::Agent {
                event: AgentEvent::Usage { total },
            } => Some(*total),
            _ => None,
        };
        let masked = self.mask.lock().await.push(event);
        for event in masked {
            self.keep(event).await?;
        }
        if is_start {
            self.note_start().await;
        }
        if let Some(usage) = usage {
            self.check_caps(&usage).await;
        }
        Ok(())
    }

    async fn log(&self, stream: Stream, bytes: Bytes) -> Result<(), SinkError> {
        self.plane.fail_point("log.before_writing");
        let written = self
            .log
            .lock()
            .await
            .write(stream, &bytes, self.plane.now_ms())
            .await;
        self.plane.fail_point("log.after_writing");
        written.map_err(|error| match error {
            LogError::Stale(_) => SinkError::Stale,
            error => SinkError::Store(Box::new(error)),
        })
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
            .finish(&self.held, &chunk.name, self.plane.now_ms())
            .await
            .map_err(failed)?;
        let noted = self
            .plane
            .note_artifact_kind(self.held.key.run, &chunk.name, chunk.kind)
            .await;
        self.plane.fail_point("artifact.after_keeping");
        noted.map_err(failed)
    }

    async fn renew(&self) -> Result<(), SinkError> {
        let now = self.plane.now_ms();
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

/// The declared secrets by their names, and the phase's own token.
fn masker(prepared: &Prepared) -> Result<Masker, Failure> {
    let values = prepared.secrets.values.iter();
    let values = values.map(|(name, value)| (name.as_str(), value));
    let own = [("phase-token", &prepared.secrets.token)];
    Masker::new(values.chain(own)).map_err(|error| refused(&error))
}

const fn kind(event: &PhaseEvent) -> &'static str {
    match event {
        PhaseEvent::Stage { .. } => "stage",
        PhaseEvent::Agent { .. } => "agent",
        PhaseEvent::Egress { .. } => "egress",
        PhaseEvent::Ended { .. } => "ended",
    }
}
