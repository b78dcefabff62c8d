//! Keeping leases alive (D2, case 1).
//!
//! One thread of its own renews every lease that this process holds, on a runtime of its own: neither a
//! busy worker pool nor a full queue can starve it. The holder measures with its monotonic clock from the
//! moment when it *asked* for the last renewal that succeeded, so it always gives up before the server
//! does. A process that was stopped (SIGSTOP) past the lease therefore finds its leases lost when it
//! wakes, and says so to each phase before it renews anything.

use std::{
    collections::HashMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures::future::join_all;
use tokio::{
    runtime,
    sync::{mpsc, watch},
};

use crate::{PhaseKey, PhaseSink, SinkError};

/// A renewal is tried this many times within one lease, so two may fail.
const RENEWALS_PER_TTL: u32 = 4;

/// A store that answers at once with an error must not make the thread spin.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The thread that renews leases. Dropping it stops renewing.
#[derive(Debug)]
pub struct LeaseKeeper {
    /// Two messages per phase, so its length needs no other bound.
    requests: mpsc::UnboundedSender<Request>,
}

/// A lease that is being kept; dropping it lets go of the lease.
#[derive(Debug)]
pub struct Hold {
    key: PhaseKey,
    requests: mpsc::UnboundedSender<Request>,
    lost: watch::Receiver<bool>,
}

enum Request {
    Keep(PhaseKey, Held),
    LetGo(PhaseKey),
}

struct Held {
    sink: Arc<dyn PhaseSink>,
    lost: watch::Sender<bool>,
    /// When the last renewal that succeeded was asked for.
    asked: Instant,
    /// When a renewal was last tried, and how long to wait before the next try.
    tried: Instant,
    pause: Duration,
}

impl LeaseKeeper {
    pub fn start() -> std::io::Result<Self> {
        let (requests, inbox) = mpsc::unbounded_channel();
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        thread::Builder::new()
            .name("lease-keeper".to_owned())
            .spawn(move || runtime.block_on(keep(inbox)))?;
        Ok(Self { requests })
    }

    /// Keeps the lease of `key`, which the sink's owner has taken.
    pub fn hold(&self, key: PhaseKey, sink: Arc<dyn PhaseSink>) -> Hold {
        let asked = sink.lease_asked();
        let (lost_tx, lost) = watch::channel(false);
        let held = Held {
            sink,
            lost: lost_tx,
            asked,
            tried: asked,
            pause: Duration::ZERO,
        };
        // Where the thread is gone the sender inside is dropped, which `lost` below reads as lost.
        drop(self.requests.send(Request::Keep(key.clone(), held)));
        Hold {
            key,
            requests: self.requests.clone(),
            lost,
        }
    }
}

impl Hold {
    /// Resolves when the lease is lost: refused by its fence, or not renewed in time.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        // An error means that the keeper is gone, and with it every lease.
        drop(lost.wait_for(|lost| *lost).await);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.requests.send(Request::LetGo(self.key.clone())));
    }
}

/// The thread's whole life is one future, so that whatever a renewal leaves to its runtime (giving a database
/// connection back, say) is done too.
async fn keep(mut inbox: mpsc::UnboundedReceiver<Request>) {
    let mut held: HashMap<PhaseKey, Held> = HashMap::new();
    loop {
        let due_in = held.values().map(Held::due_in).min();
        let due = async {
            match due_in {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            request = inbox.recv() => match request {
                Some(Request::Keep(key, lease)) => drop(held.insert(key, lease)),
                Some(Request::LetGo(key)) => drop(held.remove(&key)),
                None => return,
            },
            () = due => tend(&mut held).await,
        }
    }
}

/// Renews every lease that is due, all at once: a slow answer for one must not cost another its lease.
async fn tend(held: &mut HashMap<PhaseKey, Held>) {
    let due: Vec<PhaseKey> = held
        .iter()
        .filter(|(_, lease)| lease.due_in().is_zero())
        .map(|(key, _)| key.clone())
        .collect();
    let tended = held
        .iter_mut()
        .filter(|(_, lease)| lease.due_in().is_zero())
        .map(|(key, lease)| lease.renew(key));
    let kept = join_all(tended).await;
    for (key, kept) in due.iter().zip(kept) {
        if !kept && let Some(lease) = held.remove(key) {
            lease.lost.send_replace(true);
        }
    }
}

impl Held {
    fn ttl(&self) -> Duration {
        self.sink.lease_ttl()
    }

    fn due_in(&self) -> Duration {
        (self.ttl() / RENEWALS_PER_TTL)
            .saturating_sub(self.asked.elapsed())
            .max(self.pause.saturating_sub(self.tried.elapsed()))
    }

    /// False once the lease is lost.
    async fn renew(&mut self, key: &PhaseKey) -> bool {
        let asked = Instant::now();
        let Some(left) = self.ttl().checked_sub(self.asked.elapsed()) else {
            tracing::warn!(%key, "the lease ran out before it could be renewed");
            return false;
        };
        self.tried = asked;
        self.pause = Duration::ZERO;
        let patience = (self.ttl() / RENEWALS_PER_TTL).min(left);
        match tokio::time::timeout(patience, self.sink.renew()).await {
            Ok(Ok(())) => self.asked = asked,
            Ok(Err(SinkError::Stale)) => {
                tracing::warn!(%key, "the lease belongs to somebody else");
                return false;
            }
            Ok(Err(error)) => {
                tracing::warn!(%key, %error, "a renewal failed; trying again");
                self.pause = RETRY_PAUSE.min(left);
            }
            Err(_elapsed) => {
                tracing::warn!(%key, "a renewal was not answered in time; trying again")
            }
        }
        true
    }
}
