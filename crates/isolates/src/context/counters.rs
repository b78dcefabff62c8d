//! What an invocation used, counted outside its process.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use bulkhead_wire::methods::Method;

const DENIED_HOSTS_MAX: usize = 8;

/// Counters that only grow. Calls of one invocation run side by side, so they are atomic.
#[derive(Debug, Default)]
pub struct Counters {
    fetches: AtomicU32,
    fetch_sent_bytes: AtomicU64,
    fetch_received_bytes: AtomicU64,
    denied_hosts: Mutex<BTreeSet<String>>,
}

/// A reading of [`Counters`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used {
    pub fetches: u32,
    pub fetch_sent_bytes: u64,
    pub fetch_received_bytes: u64,
    pub denied_hosts: Vec<String>,
}

impl Counters {
    /// One request, or one hop, that is sent.
    pub fn fetch(&self) {
        self.fetches.fetch_add(1, Relaxed);
    }

    pub fn fetch_sent(&self, bytes: u64) {
        self.fetch_sent_bytes.fetch_add(bytes, Relaxed);
    }

    /// Bytes of a body, after decompression.
    pub fn fetch_received(&self, bytes: u64) {
        self.fetch_received_bytes.fetch_add(bytes, Relaxed);
    }

    /// A host that was refused: evidence for the fault that may come of it. The first few are kept.
    pub fn denied(&self, host: &str) {
        let mut hosts = self
            .denied_hosts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if hosts.len() < DENIED_HOSTS_MAX {
            hosts.insert(host.chars().take(253).collect());
        }
    }

    pub fn used(&self) -> Used {
        let hosts = self
            .denied_hosts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Used {
            fetches: self.fetches.load(Relaxed),
            fetch_sent_bytes: self.fetch_sent_bytes.load(Relaxed),
            fetch_received_bytes: self.fetch_received_bytes.load(Relaxed),
            denied_hosts: hosts.iter().cloned().collect(),
        }
    }
}

/// How often each function was called, against its limit (P21).
#[derive(Debug, Default)]
pub struct CallCounts {
    counted: HashMap<&'static str, u32>,
    total: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("host.{path} may be called {calls_max} times in one invocation")]
pub struct LimitReached {
    pub path: &'static str,
    pub calls_max: u32,
}

impl CallCounts {
    /// Counts a call, also one that is refused.
    pub fn count(&mut self, method: &Method) -> Result<(), LimitReached> {
        self.total = self.total.saturating_add(1);
        let Some(calls_max) = method.calls_max else {
            return Ok(());
        };
        let counted = self.counted.entry(method.counted).or_default();
        if *counted >= calls_max {
            let path = method.path;
            return Err(LimitReached { path, calls_max });
        }
        *counted += 1;
        Ok(())
    }

    pub fn total(&self) -> u32 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use bulkhead_wire::methods::{METHODS, by_number};

    use super::*;

    /// P21: every function with a limit is refused at its next call, and those that share a limit share the count.
    #[test]
    fn p21_calls_are_counted_to_their_limit_and_no_further() {
        for method in METHODS {
            let mut counts = CallCounts::default();
            let granted = (0..100).filter(|_| counts.count(method).is_ok()).count();
            let expected = method.calls_max.map_or(100, |max| max as usize);
            assert_eq!(granted, expected, "{}", method.path);
            assert_eq!(counts.total(), 100);
        }
        let mut counts = CallCounts::default();
        let (upload, info) = (by_number(80).unwrap(), by_number(82).unwrap());
        for _ in 0..5 {
            counts.count(upload).unwrap();
            counts.count(info).unwrap();
        }
        assert_eq!(counts.count(info).unwrap_err().calls_max, 10);
        counts.count(by_number(70).unwrap()).unwrap();
    }

    #[test]
    fn of_denied_hosts_the_first_are_kept() {
        let counters = Counters::default();
        for n in 0..100 {
            counters.denied(&format!("h{n}.example"));
        }
        assert_eq!(counters.used().denied_hosts.len(), DENIED_HOSTS_MAX);
    }
}
