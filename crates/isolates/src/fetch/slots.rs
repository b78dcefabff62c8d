//! How many calls of one installation are under way. What is too much waits, so that no installation's burst takes the
//! service's sockets from others (HT14).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct Slots {
    at_once: usize,
    of: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Slots {
    pub(super) fn new(at_once: usize) -> Self {
        Self {
            at_once,
            of: Mutex::default(),
        }
    }

    /// Waits for a slot, and gives it back when dropped.
    pub(super) async fn take(&self, installation: &str) -> Option<OwnedSemaphorePermit> {
        let slots = self.slots(installation);
        slots.acquire_owned().await.ok()
    }

    fn slots(&self, installation: &str) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slots) = of.get(installation) {
            return Arc::clone(slots);
        }
        // Those whose slots nobody holds or waits for are forgotten, at the cost of one look at each newcomer.
        of.retain(|_, slots| Arc::strong_count(slots) > 1);
        let slots = Arc::new(Semaphore::new(self.at_once));
        of.insert(installation.to_owned(), Arc::clone(&slots));
        slots
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn ht14_an_installation_waits_for_its_own_slots_and_not_for_others() {
        let slots = Slots::new(2);
        let first = slots.take("a").now_or_never();
        let second = slots.take("a").now_or_never();
        assert!(first.is_some() && second.is_some());
        assert!(slots.take("a").now_or_never().is_none());
        assert!(slots.take("b").now_or_never().is_some());
        drop(first);
        assert!(slots.take("a").now_or_never().is_some());
        drop(second);
        assert!(slots.take("c").now_or_never().is_some());
        assert_eq!(
            slots.of.lock().map(|of| of.len()).ok(),
            Some(1),
            "idle ones are forgotten"
        );
    }
}
