//! The log of decisions: bounded whatever the sandbox does, and complete in its counts.
//!
//! The first decision of a kind is reported at once; repetitions within a window are counted and
//! reported together. Where a window sees more kinds than it can hold apart, the rest are counted in one
//! record; where the reader is slow, counts wait for it. So a flood costs the reader a bounded number of
//! records, and the sum of their counts is the number of decisions.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bulkhead_egress::Decision;
use serde::Serialize;
use tokio::{sync::mpsc, time};
use tokio_util::sync::CancellationToken;

/// Repetitions within this time become one record.
const WINDOW: Duration = Duration::from_secs(1);
/// Kinds of decisions held apart within a window.
const MAX_KINDS: usize = 64;

/// What the sandbox asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// A CONNECT tunnel.
    Tunnel,
    /// A plain HTTP request.
    Request,
    /// The addresses of a name.
    Name,
}

/// One or more equal decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecisionRecord {
    pub asked: Asked,
    pub allowed: bool,
    pub host: String,
    /// 0 where none was asked for or could be read.
    pub port: u16,
    pub why: String,
    /// How often this was decided since the last such record.
    pub count: u64,
}

impl fmt::Display for DecisionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.allowed { "allowed" } else { "refused" };
        match self.port {
            0 => write!(f, "{verb} {}: {}", self.host, self.why)?,
            port => write!(f, "{verb} {}:{port}: {}", self.host, self.why)?,
        }
        match self.count {
            1 => Ok(()),
            count => write!(f, " ({count} times)"),
        }
    }
}

/// How much was decided so far, whether or not the records were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LogStats {
    pub allowed: u64,
    pub refused: u64,
}

/// Whether counts still wait for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unreported {
    None,
    Some,
}

#[derive(Debug, PartialEq, Eq, Hash, Clone)]
struct Kind {
    asked: Asked,
    host: String,
    port: u16,
    why: String,
    allowed: bool,
}

/// Collects decisions and hands records to the reader. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct DecisionLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    reader: mpsc::Sender<DecisionRecord>,
}

#[derive(Debug, Default)]
struct State {
    /// Decisions of this window, with those not yet reported.
    kinds: HashMap<Kind, u64>,
    /// Decisions of further kinds: allowed, refused.
    further: [u64; 2],
    stats: LogStats,
}

impl DecisionLog {
    pub(crate) fn new(reader: mpsc::Sender<DecisionRecord>) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            reader,
        }))
    }

    pub(crate) fn stats(&self) -> LogStats {
        self.state().stats
    }

    pub(crate) fn record(&self, asked: Asked, decision: &Decision) {
        let kind = Kind {
            asked,
            host: decision.host.clone(),
            port: decision.port,
            why: decision.why.to_string(),
            allowed: decision.allowed(),
        };
        let mut state = self.state();
        match kind.allowed {
            true => state.stats.allowed += 1,
            false => state.stats.refused += 1,
        }
        if let Some(unreported) = state.kinds.get_mut(&kind) {
            *unreported += 1;
        } else if state.kinds.len() >= MAX_KINDS {
            state.further[usize::from(!kind.allowed)] += 1;
        } else {
            let sent = self.0.reader.try_send(kind.record(1)).is_ok();
            state.kinds.insert(kind, u64::from(!sent));
        }
    }

    /// Reports what was counted, at the end of each window and once more at the end.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut ticks = time::interval(WINDOW);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    self.flush();
                }
                () = stop.cancelled() => return self.finish().await,
            }
        }
    }

    /// Gives a slow reader a bounded time to take the last counts.
    async fn finish(&self) {
        let deadline = time::Instant::now() + WINDOW;
        while self.flush() == Unreported::Some
            && !self.0.reader.is_closed()
            && time::Instant::now() < deadline
        {
            time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends what fits and keeps the counts of what does not.
    fn flush(&self) -> Unreported {
        let mut state = self.state();
        let reader = &self.0.reader;
        state.kinds.retain(|kind, unreported| {
            *unreported > 0 && reader.try_send(kind.record(*unreported)).is_err()
        });
        for (further, allowed) in state.further.iter_mut().zip([true, false]) {
            if *further > 0 && reader.try_send(further_record(*further, allowed)).is_ok() {
                *further = 0;
            }
        }
        match state.kinds.is_empty() && state.further == [0, 0] {
            true => Unreported::None,
            false => Unreported::Some,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind {
    fn record(&self, count: u64) -> DecisionRecord {
        DecisionRecord {
            asked: self.asked,
            allowed: self.allowed,
            host: self.host.clone(),
            port: self.port,
            why: self.why.clone(),
            count,
        }
    }
}

fn further_record(count: u64, allowed: bool) -> DecisionRecord {
    DecisionRecord {
        asked: Asked::Tunnel,
        allowed,
        host: "(further hosts)".to_owned(),
        port: 0,
        why: format!(
            "more than {MAX_KINDS} kinds of decisions within a second are not listed one by one"
        ),
        count,
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_egress::Why;

    use super::*;

    fn refused(host: &str) -> Decision {
        Decision {
            host: host.to_owned(),
            port: 443,
            why: Why::NoRule,
        }
    }

    fn drain(reader: &mut mpsc::Receiver<DecisionRecord>) -> Vec<DecisionRecord> {
        std::iter::from_fn(|| reader.try_recv().ok()).collect()
    }

    #[tokio::test]
    async fn repetitions_are_one_record_with_their_count() {
        let (sender, mut reader) = mpsc::channel(8);
        let log = DecisionLog::new(sender);
        for _ in 0..1_000 {
            log.record(Asked::Tunnel, &refused("evil.com"));
        }
        assert_eq!(drain(&mut reader).len(), 1, "the first is reported at once");
        log.flush();
        let rest = drain(&mut reader);
        assert_eq!(rest.iter().map(|r| r.count).collect::<Vec<_>>(), [999]);
        assert_eq!(
            rest[0].to_string(),
            "refused evil.com:443: no rule of the allow-list names it (999 times)"
        );
        log.flush();
        assert!(drain(&mut reader).is_empty());
    }

    /// A flood of different names, and a reader that takes nothing for a while: bounded records, exact sum.
    #[tokio::test]
    async fn a_flood_of_names_loses_no_count() {
        let (sender, mut reader) = mpsc::channel(16);
        let log = DecisionLog::new(sender);
        for n in 0..10_000 {
            log.record(Asked::Name, &refused(&format!("n{n}.evil.com")));
        }
        let mut records = drain(&mut reader);
        assert_eq!(records.len(), 16);
        for _ in 0..10 {
            log.flush();
            records.extend(drain(&mut reader));
        }
        assert_eq!(records.iter().map(|r| r.count).sum::<u64>(), 10_000);
        assert!(records.len() <= MAX_KINDS + 1, "{}", records.len());
        assert_eq!(
            log.stats(),
            LogStats {
                allowed: 0,
                refused: 10_000
            }
        );
    }

    /// A reader with room for one record gets the whole count when the log ends.
    #[tokio::test]
    async fn the_end_of_the_log_waits_for_a_slow_reader() {
        let (sender, mut reader) = mpsc::channel(1);
        let log = DecisionLog::new(sender);
        for n in 0..30 {
            log.record(Asked::Name, &refused(&format!("n{}.evil.com", n % 10)));
        }
        let stop = CancellationToken::new();
        stop.cancel();
        let reading = async {
            let mut count = 0;
            while let Some(record) = reader.recv().await {
                count += record.count;
                time::sleep(Duration::from_millis(10)).await;
            }
            count
        };
        let ((), count) = tokio::join!(log.run(stop), reading);
        assert_eq!(count, 30);
    }
}
