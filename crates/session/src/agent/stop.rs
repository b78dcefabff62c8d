//! Why an agent is stopped before it ends by itself: the first reason counts.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// The first reason to stop.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reason {
    Cancelled,
    /// Nobody is there any more to report to.
    ExecutorGone,
    Idle,
    /// The session's own time is over.
    TimedOut(std::time::Duration),
    /// A person wants to go on later.
    Paused,
    /// Words: which cap, and how far it went.
    Cap(String),
}

/// A switch that many can throw. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stops {
    reason: Arc<OnceLock<Reason>>,
    token: CancellationToken,
}

impl Stops {
    pub(crate) fn stop(&self, reason: Reason) {
        // A later reason changes nothing.
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    pub(crate) fn reason(&self) -> Option<&Reason> {
        self.reason.get()
    }

    pub(crate) async fn stopped(&self) {
        self.token.cancelled().await;
    }

    pub(crate) const fn token(&self) -> &CancellationToken {
        &self.token
    }
}
