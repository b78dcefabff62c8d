//! Bytes both ways between two streams: exact, half-closed where an end half-closes, bounded in time.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{self, Instant},
};

const BUFFER: usize = 32 * 1_024;

/// How long a relay may go on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelayLimits {
    /// Without a byte in either direction.
    pub(crate) idle: Duration,
    pub(crate) total: Duration,
}

/// Counts time without traffic. Both directions note their bytes here.
struct Activity {
    start: Instant,
    last_ms: AtomicU64,
}

impl Activity {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            last_ms: AtomicU64::new(0),
        }
    }

    fn note(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }

    /// Returns when there was no traffic for `idle`.
    async fn silence(&self, idle: Duration) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let due = self.start + last + idle;
            if due <= Instant::now() {
                return;
            }
            time::sleep_until(due).await;
        }
    }
}

/// Relays until both directions have ended, one fails, or a limit is reached. Dropping it closes both.
pub(crate) async fn relay<A, B>(inside: A, outside: B, limits: RelayLimits) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let activity = Activity::new();
    let (in_read, in_write) = tokio::io::split(inside);
    let (out_read, out_write) = tokio::io::split(outside);
    let both = async {
        tokio::try_join!(
            one_way(in_read, out_write, &activity),
            one_way(out_read, in_write, &activity),
        )
    };
    tokio::select! {
        result = both => result.map(|_| ()),
        () = activity.silence(limits.idle) => Err(io::ErrorKind::TimedOut.into()),
        () = time::sleep(limits.total) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        activity.note();
        if count == 0 {
            // The other direction goes on: a client may close its side and wait for the answer.
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        activity.note();
    }
}
