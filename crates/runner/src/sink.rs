//! What a phase says, on its way to the control plane.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use bulkhead_model::{PhaseEvent, Stream};
use bulkhead_session::wire::ArtifactChunk;
use bytes::Bytes;

/// Takes everything that one attempt at one phase says. Whoever implements it knows the attempt's fence
/// and refuses a stale one; a slow sink slows the phase down, nothing is dropped on the way.
#[async_trait]
pub trait PhaseSink: Send + Sync + 'static {
    async fn event(&self, event: PhaseEvent) -> Result<(), SinkError>;

    /// Raw output, cut anywhere: masking is the sink's duty, across the cuts.
    async fn log(&self, stream: Stream, bytes: Bytes) -> Result<(), SinkError>;

    /// The next piece of an artifact; an artifact is complete when the report names it.
    async fn artifact(&self, chunk: ArtifactChunk) -> Result<(), SinkError>;

    /// Renews the lease. Called from the executor's own thread with a runtime of its own, so that busy
    /// workers cannot starve it (case 1).
    async fn renew(&self) -> Result<(), SinkError>;

    /// How long a lease lasts from the moment when it was asked for.
    fn lease_ttl(&self) -> Duration;

    /// When the lease was asked for, by this process's monotonic clock.
    fn lease_asked(&self) -> Instant;
}

#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The lease belongs to somebody else: the holder must end its phase and say nothing more.
    #[error("the lease of this attempt is no longer held")]
    Stale,
    #[error("the control plane could not store what the phase said")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}
