//! Room for requests that run git on the host: so many at once, and so many of one run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bulkhead_model::RunId;
use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Refused;

pub(crate) struct Slots {
    all: Arc<Semaphore>,
    per_run: usize,
    of_runs: Mutex<HashMap<RunId, Weak<Semaphore>>>,
}

/// A request's place. It keeps the count of its run alive.
pub(crate) struct Slot {
    _of_all: OwnedSemaphorePermit,
    _of_run: OwnedSemaphorePermit,
}

impl Slots {
    pub(crate) fn new(all: usize, per_run: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            per_run,
            of_runs: Mutex::default(),
        }
    }

    /// Waits for room. A run's own place comes first: whoever waits for that takes none from others.
    pub(crate) async fn take(&self, run: RunId) -> Result<Slot, Refused> {
        let of_run = self.of(run).acquire_owned().await;
        let of_all = Arc::clone(&self.all).acquire_owned().await;
        match (of_run, of_all) {
            (Ok(of_run), Ok(of_all)) => Ok(Slot {
                _of_all: of_all,
                _of_run: of_run,
            }),
            _ => Err(Refused::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the git gateway is closing",
            )),
        }
    }

    fn of(&self, run: RunId) -> Arc<Semaphore> {
        let mut of_runs = self.of_runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = of_runs.get(&run).and_then(Weak::upgrade) {
            return places;
        }
        of_runs.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(self.per_run));
        of_runs.insert(run, Arc::downgrade(&places));
        places
    }
}
