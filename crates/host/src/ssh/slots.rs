//! Sessions beyond the server's `MaxSessions` wait, none is lost.
//!
//! The server tells nobody its limit; it refuses. So the number of sessions that are open at a refusal becomes the limit, and
//! after some successes one more is tried, because a refusal may also have met a session that was just being closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// What the usual server lets open, besides the one that the connection itself uses.
const FIRST_LIMIT: usize = 9;
/// More than this is not tried, whatever the server would take.
const LAST_LIMIT: usize = 64;
/// Successes at the limit before one more is tried.
const TRY_ONE_MORE_AFTER: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Slots {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    open: usize,
    trying: usize,
    limit: usize,
    successes: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            open: 0,
            trying: 0,
            limit: FIRST_LIMIT,
            successes: 0,
        }
    }
}

/// A session that is being opened.
#[derive(Debug)]
pub(super) struct Attempt {
    slots: Arc<Slots>,
    is_over: bool,
}

/// An open session; dropped when the server has closed it.
#[derive(Debug)]
pub(super) struct Slot(Arc<Slots>);

impl Slots {
    /// Waits for its turn.
    pub(super) async fn begin(self: &Arc<Self>) -> Attempt {
        loop {
            let changed = self.changed.notified();
            if self.state().try_one() {
                return Attempt {
                    slots: Arc::clone(self),
                    is_over: false,
                };
            }
            changed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    const fn try_one(&mut self) -> bool {
        let has_room = self.open + self.trying < self.limit;
        if has_room {
            self.trying += 1;
        }
        has_room
    }

    const fn opened(&mut self) {
        self.trying -= 1;
        self.open += 1;
        self.successes += 1;
        if self.successes >= TRY_ONE_MORE_AFTER && self.limit < LAST_LIMIT {
            self.successes = 0;
            self.limit += 1;
        }
    }

    /// Returns how many sessions are open.
    fn refused(&mut self) -> usize {
        self.trying -= 1;
        self.limit = self.open.max(1);
        self.successes = 0;
        self.open
    }
}

impl Attempt {
    pub(super) fn opened(mut self) -> Slot {
        self.is_over = true;
        self.slots.state().opened();
        // The limit may have grown.
        self.slots.changed.notify_one();
        Slot(Arc::clone(&self.slots))
    }

    /// Returns how many other sessions are open: those that must end before the next attempt can succeed.
    pub(super) fn refused(mut self) -> usize {
        self.is_over = true;
        self.slots.state().refused()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_over {
            self.slots.state().trying -= 1;
            self.slots.changed.notify_one();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.state().open -= 1;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A server that takes four at once; two hundred want in.
    #[tokio::test]
    async fn h13_every_session_gets_its_turn_whatever_the_server_s_limit_is() {
        const SERVER_TAKES: usize = 4;
        let (slots, open, done) = (
            Arc::new(Slots::default()),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        let one = || async {
            loop {
                let attempt = slots.begin().await;
                tokio::task::yield_now().await;
                if open.load(Ordering::SeqCst) == SERVER_TAKES {
                    attempt.refused();
                    tokio::task::yield_now().await;
                    continue;
                }
                open.fetch_add(1, Ordering::SeqCst);
                let slot = attempt.opened();
                tokio::task::yield_now().await;
                open.fetch_sub(1, Ordering::SeqCst);
                drop(slot);
                done.fetch_add(1, Ordering::SeqCst);
                return;
            }
        };
        futures::future::join_all((0..200).map(|_| one())).await;
        assert_eq!(done.load(Ordering::SeqCst), 200);
        let state = slots.state();
        assert_eq!((state.open, state.trying), (0, 0));
    }

    #[tokio::test]
    async fn an_attempt_that_is_given_up_leaves_its_turn_to_the_next() {
        let slots = Arc::new(Slots::default());
        let mut held = Vec::new();
        for _ in 0..FIRST_LIMIT {
            held.push(slots.begin().await);
        }
        let waits = slots.begin();
        tokio::pin!(waits);
        assert!(futures::poll!(&mut waits).is_pending());
        held.pop();
        drop(waits.await);
    }
}
