//! The server's clock, in one place and handed in: milliseconds since the epoch, as stored and shown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What time it is for everything that is stored, due or expires.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    /// Goes only when it is told to.
    Manual(ManualClock),
}

/// A clock for tests. Its clones show the same time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    pub fn starting_at(ms: i64) -> Self {
        Self(Arc::new(AtomicI64::new(ms)))
    }

    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock {
    pub(crate) fn now_ms(&self) -> i64 {
        match self {
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, |since| {
                    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
                })
            }
            Self::Manual(clock) => clock.0.load(Ordering::SeqCst),
        }
    }
}
