//! A plug's words on their way to whoever watches the session.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bulkhead_session::plug::Log;
use tokio::sync::{mpsc, oneshot};

use crate::outside::Outside;

/// Lines that wait for whoever reads them; the rest is counted.
const LOG_QUEUE: usize = 1024;
/// How long a flush waits for whoever reads.
const FLUSH: Duration = Duration::from_secs(2);

/// Where a plug's words go. They wait in a queue: JavaScript does not wait for whoever reads them.
#[derive(Clone)]
pub(crate) struct Logger {
    queue: mpsc::Sender<Said>,
    dropped: Arc<AtomicU64>,
    /// The queue's end, until there is somebody to tell.
    lines: Arc<std::sync::Mutex<Option<mpsc::Receiver<Said>>>>,
}

pub(crate) enum Said {
    Words(String),
    /// Answered when all before it has been said.
    Flush(oneshot::Sender<()>),
}

impl Logger {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Said>) {
        let (queue, lines) = mpsc::channel(LOG_QUEUE);
        let logger = Self {
            queue,
            dropped: Arc::default(),
            lines: Arc::default(),
        };
        (logger, lines)
    }

    pub(crate) fn keep(&self, lines: mpsc::Receiver<Said>) {
        *self.lines() = Some(lines);
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Option<mpsc::Receiver<Said>>> {
        self.lines
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn say(&self, words: &str) {
        if self.queue.try_send(Said::Words(words.to_owned())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From now on somebody listens, and hears what was said before too.
    pub(crate) fn listen(&self, log: Log, outside: &Outside) {
        let Some(mut lines) = self.lines().take() else {
            return;
        };
        let dropped = Arc::clone(&self.dropped);
        outside.aside(async move {
            while let Some(said) = lines.recv().await {
                match said {
                    Said::Words(words) => {
                        for line in words.lines() {
                            log.say(line).await;
                        }
                    }
                    Said::Flush(done) => {
                        let lost = dropped.swap(0, Ordering::Relaxed);
                        if lost > 0 {
                            log.say(&format!(
                                "{lost} messages were lost: nobody read fast enough"
                            ))
                            .await;
                        }
                        // Whoever asked may have stopped waiting.
                        let _ = done.send(());
                    }
                }
            }
        });
    }

    pub(crate) async fn flushed(&self) {
        if self.lines().is_some() {
            return;
        }
        let (done, all_said) = oneshot::channel();
        if self.queue.send(Said::Flush(done)).await.is_ok() {
            // Not for ever: whoever reads may have stopped.
            let _ = tokio::time::timeout(FLUSH, all_said).await;
        }
    }
}
