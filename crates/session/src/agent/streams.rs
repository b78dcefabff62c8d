//! Reading a process's output, with an eye on when it last said anything.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bulkhead_host::Reader;
use bulkhead_model::Stream;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, ReadBuf},
    time::Instant,
};

use crate::outbox::Outbox;

/// When output last came, shared by all streams of a process.
#[derive(Debug, Clone)]
pub(super) struct Activity {
    start: Instant,
    last_ms: Arc<AtomicU64>,
    paused: Arc<AtomicBool>,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            last_ms: Arc::default(),
            paused: Arc::default(),
        }
    }

    fn note(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }

    /// Silence does not count from here on.
    pub(super) fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
    }

    pub(super) fn go_on(&self) {
        self.note();
        self.paused.store(false, Ordering::Relaxed);
    }

    /// Returns once nothing came for as long as `limit`.
    pub(super) async fn silent_for(&self, limit: Duration) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let until = self.start + last + limit;
            if self.paused.load(Ordering::Relaxed) {
                self.note();
                tokio::time::sleep(limit).await;
                continue;
            }
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// A reader that notes when something came.
pub(super) struct Watched {
    pub(super) reader: Reader,
    pub(super) activity: Activity,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(cx, into))?;
        if into.filled().len() > before {
            self.activity.note();
        }
        Poll::Ready(Ok(()))
    }
}

/// Sends everything that `reader` gives to the log until it ends.
pub(super) async fn pump(mut reader: Watched, stream: Stream, out: &Outbox) {
    let mut piece = vec![0; 64 << 10];
    // An error is the end of the stream too: the process's exit says the rest.
    while let Ok(count @ 1..) = reader.read(&mut piece).await {
        if stream == Stream::Stdout {
            out.first_word().await;
        }
        out.log(stream, piece.get(..count).unwrap_or_default())
            .await;
    }
}
