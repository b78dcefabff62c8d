//! A sink that remembers, and refuses or hangs when told to.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bulkhead_model::{PhaseEvent, Stream};
use bulkhead_runner::{ArtifactChunk, PhaseSink, SinkError};
use bytes::Bytes;

pub(crate) const TTL: Duration = Duration::from_millis(400);

pub(crate) struct FakeSink {
    pub(crate) asked: Instant,
    pub(crate) renewals: AtomicU32,
    pub(crate) stale: AtomicBool,
    pub(crate) failing: AtomicBool,
    pub(crate) hanging: AtomicBool,
    pub(crate) log: Mutex<Vec<u8>>,
    pub(crate) events: Mutex<Vec<PhaseEvent>>,
    pub(crate) artifacts: Mutex<Vec<ArtifactChunk>>,
}

impl Default for FakeSink {
    fn default() -> Self {
        Self {
            asked: Instant::now(),
            renewals: AtomicU32::default(),
            stale: AtomicBool::default(),
            failing: AtomicBool::default(),
            hanging: AtomicBool::default(),
            log: Mutex::default(),
            events: Mutex::default(),
            artifacts: Mutex::default(),
        }
    }
}

impl FakeSink {
    pub(crate) fn log_text(&self) -> String {
        String::from_utf8(self.log.lock().unwrap().clone()).unwrap()
    }
}

#[async_trait]
impl PhaseSink for FakeSink {
    async fn event(&self, event: PhaseEvent) -> Result<(), SinkError> {
        self.events.lock().unwrap().push(event);
        Ok(())
    }

    async fn log(&self, _: Stream, bytes: Bytes) -> Result<(), SinkError> {
        if self.stale.load(Ordering::SeqCst) {
            return Err(SinkError::Stale);
        }
        self.log.lock().unwrap().extend_from_slice(&bytes);
        Ok(())
    }

    async fn artifact(&self, chunk: ArtifactChunk) -> Result<(), SinkError> {
        self.artifacts.lock().unwrap().push(chunk);
        Ok(())
    }

    async fn renew(&self) -> Result<(), SinkError> {
        if self.hanging.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.failing.load(Ordering::SeqCst) {
            return Err(SinkError::Store("the disk is full".into()));
        }
        if self.stale.load(Ordering::SeqCst) {
            return Err(SinkError::Stale);
        }
        self.renewals.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn lease_ttl(&self) -> Duration {
        TTL
    }

    fn lease_asked(&self) -> Instant {
        self.asked
    }
}
