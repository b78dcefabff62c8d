//! What the session says to its executor while it works: events, timings, output, artifacts.
//!
//! One bounded queue in front of the socket; whoever speaks waits while it is full, and so does the agent
//! whose output it is. Output and agent events have one budget per phase (`limits.log_bytes`); what comes after is counted,
//! not kept, so that a log bomb costs the sandbox its time and nobody else anything.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bulkhead_model::{AgentEvent, PhaseEvent, Stage, Stream};
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::summary::IsolationSummary;
use crate::wire::{ArtifactChunk, FromSession, MAX_CHUNK, Report};

/// Messages that wait for the socket.
const QUEUE: usize = 32;

/// The session's voice. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    shared: Arc<Shared>,
    queue: mpsc::Sender<FromSession>,
}

#[derive(Debug)]
struct Shared {
    /// Bytes of output and events that may still be kept.
    budget: AtomicU64,
    dropped: AtomicU64,
    spoke: AtomicBool,
}

impl Outbox {
    pub(crate) fn new(log_bytes: u64) -> (Self, mpsc::Receiver<FromSession>) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            budget: AtomicU64::new(log_bytes),
            dropped: AtomicU64::new(0),
            spoke: AtomicBool::new(false),
        });
        (Self { shared, queue }, receiver)
    }

    pub(crate) fn dropped_bytes(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Where nobody reads any more, the phase is being ended already: there is nobody left to tell.
    async fn send(&self, message: FromSession) {
        drop(self.queue.send(message).await);
    }

    pub(crate) async fn stage(&self, stage: Stage) {
        let at_ms = unix_ms();
        self.send(FromSession::Event(PhaseEvent::Stage { stage, at_ms }))
            .await;
    }

    pub(crate) async fn event(&self, event: PhaseEvent) {
        self.send(FromSession::Event(event)).await;
    }

    pub(crate) async fn report(&self, report: Report) {
        self.send(FromSession::Report(Box::new(report))).await;
    }

    pub(crate) async fn summary(&self, summary: IsolationSummary) {
        self.send(FromSession::Summary(Box::new(summary))).await;
    }

    /// The agent's turn is over, and a prompt is waited for.
    pub(crate) async fn awaiting(&self) {
        self.send(FromSession::Awaiting).await;
    }

    pub(crate) async fn artifact(&self, chunk: ArtifactChunk) {
        self.send(FromSession::Artifact(chunk)).await;
    }

    /// Bulkhead's own words; a line each.
    pub(crate) async fn say(&self, words: &str) {
        let line = format!("{}\n", crate::protocol::cut(words.to_owned(), 64 << 10));
        let data = line.into_bytes().into();
        let stream = Stream::System;
        self.send(FromSession::Log { stream, data }).await;
    }

    /// Output of the agent, as it came.
    pub(crate) async fn log(&self, stream: Stream, bytes: &[u8]) {
        let kept = self.take(bytes.len() as u64);
        let kept = usize::try_from(kept).unwrap_or(bytes.len());
        for piece in bytes.get(..kept).unwrap_or(bytes).chunks(MAX_CHUNK) {
            let data = Bytes::copy_from_slice(piece);
            self.send(FromSession::Log { stream, data }).await;
        }
    }

    /// An event of the agent. Those that the outcome depends on are always sent; an agent has few of them.
    pub(crate) async fn agent(&self, event: AgentEvent) {
        self.first_word().await;
        let essential = matches!(
            event,
            AgentEvent::Started { .. } | AgentEvent::Usage { .. } | AgentEvent::Finished { .. }
        );
        let size = serde_json::to_vec(&event).map_or(0, |json| json.len() as u64);
        if self.take(size) == size || essential {
            self.event(PhaseEvent::Agent { event }).await;
        }
    }

    /// Notes the time of the agent's first word, once.
    pub(crate) async fn first_word(&self) {
        if !self.shared.spoke.swap(true, Ordering::Relaxed) {
            self.stage(Stage::AgentFirstEvent).await;
        }
    }

    /// Takes up to `size` bytes out of the budget; the rest is counted as dropped.
    fn take(&self, size: u64) -> u64 {
        let took = |left: u64| Some(left.saturating_sub(size));
        let order = Ordering::Relaxed;
        let left = self.shared.budget.fetch_update(order, order, took);
        let granted = left.unwrap_or(0).min(size);
        self.shared.dropped.fetch_add(size - granted, order);
        granted
    }
}

/// Milliseconds since 1970.
fn unix_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
