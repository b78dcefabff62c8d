//! So many requests in any rolling time, exactly (P21): a ring of the times of those that were granted.
//!
//! A smoother rule, such as a bucket that fills, is not this one: it lets nearly twice as many through in some minute.
//! Times come in as milliseconds since any fixed moment. Two requests are in one window where less than its length
//! lies between them. A request that is refused leaves no trace.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

/// What an installation has for `host.fetch` (P21).
pub const FETCHES: Rate = Rate {
    requests: 60,
    window: Duration::from_secs(60),
};

/// At most `requests` in any time as long as `window`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub requests: usize,
    pub window: Duration,
}

/// It was one too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the installation made all the requests that it has for now; the next is granted in {} s", .retry_after.as_secs_f64().ceil())]
pub struct Refused {
    /// After this time the oldest of those that count no longer does.
    pub retry_after: Duration,
}

/// The requests of one installation.
#[derive(Debug, Clone)]
pub struct RollingWindow {
    rate: Rate,
    /// When those within the window were granted, the oldest first; never more than `rate.requests`.
    granted_ms: VecDeque<u64>,
}

impl RollingWindow {
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            granted_ms: VecDeque::new(),
        }
    }

    /// Counts a request. A clock that went backwards is taken to stand still.
    ///
    /// # Errors
    /// Where the window is full.
    pub fn take(&mut self, now_ms: u64) -> Result<(), Refused> {
        let now_ms = self
            .granted_ms
            .back()
            .map_or(now_ms, |last| now_ms.max(*last));
        let window_ms = millis(self.rate.window);
        while self
            .granted_ms
            .front()
            .is_some_and(|first| now_ms - first >= window_ms)
        {
            self.granted_ms.pop_front();
        }
        match self.granted_ms.front() {
            Some(first) if self.granted_ms.len() >= self.rate.requests => Err(Refused {
                retry_after: Duration::from_millis(first + window_ms - now_ms),
            }),
            None if self.rate.requests == 0 => Err(Refused {
                retry_after: self.rate.window,
            }),
            _ => {
                self.granted_ms.push_back(now_ms);
                Ok(())
            }
        }
    }

    /// Whether nothing in it counts any more.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        let window_ms = millis(self.rate.window);
        self.granted_ms
            .back()
            .is_none_or(|last| now_ms.saturating_sub(*last) >= window_ms)
    }
}

/// The requests of all installations. Those that made none for a window are forgotten, so that what is kept is
/// bounded by what was granted lately.
#[derive(Debug)]
pub struct RollingWindows<K> {
    rate: Rate,
    windows: HashMap<K, RollingWindow>,
    /// How many there may be before the idle ones are looked for again.
    sweep_at: usize,
}

const SWEEP_AT: usize = 64;

impl<K: Eq + Hash> RollingWindows<K> {
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            windows: HashMap::new(),
            sweep_at: SWEEP_AT,
        }
    }

    /// Counts a request of one installation.
    ///
    /// # Errors
    /// Where its window is full.
    pub fn take(&mut self, installation: K, now_ms: u64) -> Result<(), Refused> {
        if self.windows.len() >= self.sweep_at {
            self.windows.retain(|_, window| !window.is_idle(now_ms));
            self.sweep_at = SWEEP_AT.max(2 * self.windows.len());
        }
        let rate = self.rate;
        let window = self.windows.entry(installation);
        window
            .or_insert_with(|| RollingWindow::new(rate))
            .take(now_ms)
    }

    /// How many installations are remembered.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
