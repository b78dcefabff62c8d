//! The running slots: at most so many invocations run at once (D8).
//!
//! One that waits for an answer has no slot. One that goes on after an answer asks for a slot again and comes before
//! those that have not begun: it holds memory, and its time is running. One that has not begun waits for a bounded time
//! and is shed after it (O8), and is shed at once where the line is long already.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

/// All slots of a service.
#[derive(Debug, Clone)]
pub struct Slots {
    line: Arc<Mutex<Line>>,
    queued_max: usize,
    wait_max: Duration,
}

#[derive(Debug)]
struct Line {
    free: usize,
    running: u32,
    resuming: VecDeque<oneshot::Sender<Slot>>,
    fresh: VecDeque<oneshot::Sender<Slot>>,
}

/// The right to run; given back when it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Option<Arc<Mutex<Line>>>,
}

/// A slot that will come.
pub type Asked = oneshot::Receiver<Slot>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it would have waited too long for its turn: the service is busy")]
pub struct Shed;

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slots {
    pub fn new(count: usize, queued_max: usize, wait_max: Duration) -> Self {
        let line = Line {
            free: count,
            running: 0,
            resuming: VecDeque::new(),
            fresh: VecDeque::new(),
        };
        Self {
            line: Arc::new(Mutex::new(line)),
            queued_max,
            wait_max,
        }
    }

    /// For one that has not begun.
    pub async fn begin(&self) -> Result<Slot, Shed> {
        let asked = {
            let mut line = lock(&self.line);
            if line.free > 0 {
                return Ok(self.take(&mut line));
            }
            // Those whose callers went away are no line.
            line.fresh.retain(|waiting| !waiting.is_closed());
            if line.fresh.len() >= self.queued_max {
                return Err(Shed);
            }
            let (sender, asked) = oneshot::channel();
            line.fresh.push_back(sender);
            asked
        };
        match tokio::time::timeout(self.wait_max, asked).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(Shed),
        }
    }

    /// For one that goes on.
    pub fn resume(&self) -> Asked {
        let (sender, asked) = oneshot::channel();
        let mut line = lock(&self.line);
        if line.free > 0 {
            let slot = self.take(&mut line);
            drop(line);
            // The receiver is in our hands.
            let _ = sender.send(slot);
        } else {
            line.resuming.push_back(sender);
        }
        asked
    }

    pub fn running(&self) -> u32 {
        lock(&self.line).running
    }

    pub fn queued(&self) -> usize {
        let line = lock(&self.line);
        let waiting = |asked: &VecDeque<oneshot::Sender<Slot>>| {
            asked.iter().filter(|sender| !sender.is_closed()).count()
        };
        waiting(&line.fresh) + waiting(&line.resuming)
    }

    fn take(&self, line: &mut Line) -> Slot {
        line.free -= 1;
        line.running += 1;
        Slot {
            slots: Some(Arc::clone(&self.line)),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(slots) = self.slots.take() else {
            return;
        };
        loop {
            let mut line = lock(&slots);
            let next = line.resuming.pop_front().or_else(|| line.fresh.pop_front());
            let Some(next) = next else {
                line.free += 1;
                line.running -= 1;
                return;
            };
            drop(line);
            let slot = Self {
                slots: Some(Arc::clone(&slots)),
            };
            match next.send(slot) {
                Ok(()) => return,
                // Whoever asked is gone; the slot is still ours to give.
                Err(mut unwanted) => unwanted.slots = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use tokio::time::Instant;

    use super::*;

    fn slots(count: usize) -> Slots {
        Slots::new(count, 2, Duration::from_millis(200))
    }

    /// O8: nobody waits longer than the bound, and a long line is not made longer.
    #[tokio::test(start_paused = true)]
    async fn o8_who_would_wait_too_long_is_shed() {
        let slots = slots(1);
        let held = slots.begin().await.unwrap();
        let began = Instant::now();
        assert_eq!(slots.begin().await.unwrap_err(), Shed);
        assert_eq!(began.elapsed().as_millis(), 200);
        let (mut first, mut second) = (Box::pin(slots.begin()), Box::pin(slots.begin()));
        assert!(futures::poll!(&mut first).is_pending());
        assert!(futures::poll!(&mut second).is_pending());
        let began = Instant::now();
        assert_eq!(slots.begin().await.unwrap_err(), Shed);
        assert_eq!(began.elapsed().as_millis(), 0);
        drop(held);
        let slot = first.await.unwrap();
        assert_eq!((slots.running(), slots.queued()), (1, 1));
        drop(slot);
        drop(second.await.unwrap());
        assert_eq!((slots.running(), slots.queued()), (0, 0));
    }

    /// D8: who goes on comes first, and is not shed.
    #[tokio::test(start_paused = true)]
    async fn d8_who_goes_on_comes_before_who_begins() {
        let slots = slots(1);
        let held = slots.begin().await.unwrap();
        let mut begins = Box::pin(slots.begin());
        assert!(futures::poll!(&mut begins).is_pending());
        let resumes = slots.resume();
        drop(held);
        let resumed = resumes.await.unwrap();
        assert!(futures::poll!(&mut begins).is_pending());
        drop(resumed);
        begins.await.unwrap();
    }

    /// D8: a slot is never lost, whoever goes away while asking.
    #[tokio::test]
    async fn d8_a_slot_outlives_whoever_asked_for_it() {
        let slots = slots(1);
        let held = slots.begin().await.unwrap();
        drop(slots.resume());
        let (unread, also) = (slots.resume(), slots.resume());
        drop(held);
        // Given to the first, which goes away without having looked.
        drop(unread);
        drop(also.await.unwrap());
        assert_eq!(slots.running(), 0);
        slots.begin().await.unwrap();
    }
}
