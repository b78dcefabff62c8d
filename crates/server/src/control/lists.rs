//! What callers look at.

use std::{io, sync::Arc};

use bulkhead_model::{ArtifactName, GateId, PhaseName, RunId};
use bulkhead_store::{
    PhaseKey,
    artifacts::Artifact,
    runs::{Life, RunFilter},
};

use bytes::Bytes;
use futures::stream::BoxStream;

use super::ControlPlane;
use crate::{
    ArtifactView, Code, DiffView, EventView, GateView, LogLine, Page, Problem, RunQuery, RunView,
    diff, gates, logs, show,
};

const PAGE: u32 = 100;
const LARGEST_PAGE: u32 = 1000;

impl ControlPlane {
    pub async fn runs(&self, query: RunQuery) -> Result<Page<RunView>, Problem> {
        let limit = query.limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
        let filter = RunFilter {
            status: query.status,
            only: query.live.map(|live| match live {
                true => Life::Live,
                false => Life::Ended,
            }),
            before: query.cursor.map(|cursor| cursor.parse()).transpose()?,
            limit,
        };
        let summaries = self.plane.store.runs(&filter).await?;
        let is_full = summaries.len() == usize::try_from(limit).unwrap_or(usize::MAX);
        let next = summaries
            .last()
            .filter(|_| is_full)
            .map(|run| run.id.to_string());
        let mut items = Vec::with_capacity(summaries.len());
        for summary in summaries {
            items.push(self.run(summary.id).await?);
        }
        Ok(Page { items, next })
    }

    pub async fn run(&self, run: RunId) -> Result<RunView, Problem> {
        let store = &self.plane.store;
        let (state, spec) = (store.run(run).await?, self.plane.spec(run).await?);
        Ok(show::run(&state, &spec, &store.run_summary(run).await?))
    }

    /// A waiting gate, with the binding that an answer must carry.
    pub async fn gate(&self, run: RunId, gate: GateId) -> Result<GateView, Problem> {
        gates::show(&self.plane, run, gate).await
    }

    /// The diff of one phase, or of the whole run.
    pub async fn diff(&self, run: RunId, phase: Option<PhaseName>) -> Result<DiffView, Problem> {
        diff::show(&self.plane, run, phase).await
    }

    /// At most 1,000 events of one attempt after `after` (0 for all); attempt 0 is the latest.
    pub async fn events(
        &self,
        run: RunId,
        phase: &PhaseName,
        attempt: u32,
        after: u64,
    ) -> Result<Vec<EventView>, Problem> {
        let key = self.attempt(run, phase, attempt).await?;
        let events = self.plane.store.events(&key, after, LARGEST_PAGE).await?;
        Ok(events
            .into_iter()
            .map(|event| show::event(&key, event))
            .collect())
    }

    /// A page of the masked log of one attempt after `after` (0 for all); attempt 0 is the latest.
    pub async fn logs(
        &self,
        run: RunId,
        phase: &PhaseName,
        attempt: u32,
        after: u64,
    ) -> Result<Vec<LogLine>, Problem> {
        let key = self.attempt(run, phase, attempt).await?;
        logs::page(&*self.plane.logs, &key, after).await
    }

    /// The masked log of one attempt as one stream of bytes; attempt 0 is the latest.
    pub(crate) async fn log_stream(
        &self,
        run: RunId,
        phase: &PhaseName,
        attempt: u32,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, Problem> {
        let key = self.attempt(run, phase, attempt).await?;
        Ok(logs::bytes(Arc::clone(&self.plane.logs), key))
    }

    pub async fn artifacts(&self, run: RunId) -> Result<Vec<ArtifactView>, Problem> {
        // An unknown run is not an empty one.
        self.plane.store.run_summary(run).await?;
        let artifacts = self.plane.store.artifacts(run).await?;
        Ok(artifacts.into_iter().map(artifact).collect())
    }

    /// An artifact's content, as the agent wrote it.
    pub async fn open_artifact(
        &self,
        run: RunId,
        name: &ArtifactName,
    ) -> Result<tokio::fs::File, Problem> {
        let kept = self.plane.store.artifact(run, name).await?;
        let opened = tokio::fs::File::open(&kept.path).await;
        opened.map_err(|error| Problem::internal(&error))
    }

    /// The attempt that is meant: 0 is the latest.
    pub(crate) async fn attempt(
        &self,
        run: RunId,
        phase: &PhaseName,
        attempt: u32,
    ) -> Result<PhaseKey, Problem> {
        let state = self.plane.store.run(run).await?;
        let index = state
            .plan
            .phases()
            .iter()
            .position(|plan| plan.name == *phase);
        let index = index.ok_or_else(|| {
            Problem::new(Code::NotFound, format!("run {run} has no phase {phase}")).field("phase")
        })?;
        let latest = state.phases[index].attempts;
        let wanted = match attempt {
            0 => latest,
            some => some,
        };
        if wanted == 0 || wanted > latest {
            return Err(Problem::new(
                Code::NotFound,
                format!(
                    "phase {phase} of run {run} has no attempt {}",
                    attempt.max(1)
                ),
            )
            .field("attempt"));
        }
        Ok(PhaseKey {
            run,
            phase: phase.clone(),
            attempt: wanted,
        })
    }
}

fn artifact(kept: Artifact) -> ArtifactView {
    ArtifactView {
        name: kept.name.to_string(),
        phase: kept.key.phase.to_string(),
        attempt: kept.key.attempt,
        size_bytes: kept.size_bytes,
        sha256: kept.sha256,
        created_at_ms: kept.created_at_ms,
    }
}
