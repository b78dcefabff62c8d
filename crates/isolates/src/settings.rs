//! What an operator may set of the service, with the values of the documents.

use std::time::Duration;

/// Every bound of one service.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Invocations that run at once; those that wait for an answer do not count (D8).
    pub slots: usize,
    /// Invocations that wait for their first slot; more are shed at once.
    pub queued_max: usize,
    /// How long one waits for its first slot; then it is shed (O8).
    pub queue_wait: Duration,
    /// Invocations altogether, those that wait for an answer included; more are shed.
    pub invocations_max: usize,
    /// What the kept bundles hold together.
    pub bundles_bytes: usize,
    /// How long a bundle is waited for that was asked of the caller.
    pub bundle_wait: Duration,
    /// The wall clock of a check, and of making code cache.
    pub check_wall: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 16,
            queued_max: 256,
            queue_wait: Duration::from_millis(200),
            invocations_max: 1_200,
            bundles_bytes: 256 << 20,
            bundle_wait: Duration::from_secs(10),
            check_wall: Duration::from_secs(10),
        }
    }
}
