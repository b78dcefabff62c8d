//! The connection: one task that writes, one that reads.

use std::{
    io,
    sync::{Arc, PoisonError},
    time::Duration,
};

use bulkhead_init::wire::{
    self, ERROR, FRAME_HEADER, FrameHeader, INPUT, MESSAGE, Malformed, Notice, OUTPUT, Order,
};
use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, BufWriter},
    sync::{Semaphore, mpsc, watch},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Beat, table::Table};

/// Data frames that may wait for the writer: a window's worth.
const DATA_WAITING: usize = 32;
/// Starts that may be under way at the same time.
const STARTS: usize = 64;
const BUFFER: usize = 64 << 10;
/// Closing a direction takes one packet, where anybody takes it.
const SHUT_IN: Duration = Duration::from_secs(2);
/// A process that is gone at last does not let its connection hang: after this it is cut.
const END_IN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Link {
    host: String,
    /// Bounded by what there is: a start holds a permit, a stream owes at most one grant, a handle one release.
    orders: mpsc::UnboundedSender<Vec<u8>>,
    data: mpsc::Sender<Vec<u8>>,
    pub(super) starts: Semaphore,
    table: std::sync::Mutex<Table>,
    ready: watch::Sender<bool>,
    /// Cancelled when the connection is to end.
    closing: CancellationToken,
    /// Cancelled when it has ended.
    closed: CancellationToken,
    tasks: TaskTracker,
}

impl Link {
    pub(super) fn start(
        host: String,
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
        beat: Beat,
    ) -> Arc<Self> {
        let (orders, orders_out) = mpsc::unbounded_channel();
        let (data, data_out) = mpsc::channel(DATA_WAITING);
        let link = Arc::new(Self {
            host,
            orders,
            data,
            starts: Semaphore::new(STARTS),
            table: std::sync::Mutex::default(),
            ready: watch::Sender::new(false),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        let closing = link.closing.clone();
        let mut writer = Writer {
            orders: orders_out,
            data: data_out,
            to: BufWriter::with_capacity(BUFFER, to),
        };
        link.tasks.spawn(async move {
            // An error here shows to the reader as the end of the holder.
            let _ = closing.run_until_cancelled(writer.run(beat)).await;
            // Dropping a half of a stream does not close it.
            let _ = timeout(SHUT_IN, writer.to.shutdown()).await;
        });
        let reads = Arc::clone(&link);
        link.tasks.spawn(async move {
            let from = BufReader::with_capacity(BUFFER, from);
            let closed = reads.closed.clone();
            let read = closed.run_until_cancelled(reads.read(from)).await;
            if let Some(Err(error)) = read {
                tracing::debug!(
                    host = reads.host,
                    error = &error as &dyn std::error::Error,
                    "a holder's connection ended"
                );
            }
            reads.finish();
        });
        link
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// False when it ended before.
    pub(super) async fn ready(&self) -> bool {
        let mut ready = self.ready.subscribe();
        tokio::select! {
            ready = ready.wait_for(|ready| *ready) => ready.is_ok(),
            () = self.closed.cancelled() => false,
        }
    }

    pub(super) fn closed_token(&self) -> &CancellationToken {
        &self.closed
    }

    /// Closes the holder's input, which ends it, and waits for that.
    pub(super) async fn end(&self) {
        self.closing.cancel();
        if timeout(END_IN, self.closed.cancelled()).await.is_err() {
            self.cut();
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Ends both tasks, and so the connection, without waiting for the holder.
    pub(super) fn cut(&self) {
        self.closing.cancel();
        self.closed.cancel();
    }

    pub(super) fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Ends a connection that nobody has.
    pub(super) fn hang_up(&self, process: u32) {
        self.order(&Order::Release { process });
        self.order(&Order::Shut {
            process,
            channel: OUTPUT,
        });
        self.order(&Order::Finish { process });
        self.table().finish(process, OUTPUT);
    }

    /// Never waits. After the end it says nothing to anybody.
    pub(super) fn order(&self, order: &Order) {
        let _ = self.orders.send(frame(MESSAGE, 0, &wire::encode(order)));
    }

    /// Sends input, in its order with the other data of the process; false after the end.
    pub(super) async fn feed(&self, process: u32, bytes: &[u8]) -> bool {
        self.data.send(frame(INPUT, process, bytes)).await.is_ok()
    }

    /// Says that no more input comes, after all that was sent.
    pub(super) async fn finish_input(&self, process: u32) {
        let order = wire::encode(&Order::Finish { process });
        let _ = self.data.send(frame(MESSAGE, 0, &order)).await;
    }

    fn finish(&self) {
        self.closing.cancel();
        self.table().end();
        self.closed.cancel();
    }

    async fn read(&self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut head = [0; FRAME_HEADER];
        loop {
            from.read_exact(&mut head).await?;
            let header = FrameHeader::parse(head).map_err(io::Error::other)?;
            let mut payload = vec![0; header.length as usize];
            from.read_exact(&mut payload).await?;
            match header.channel {
                OUTPUT | ERROR => {
                    let kept =
                        self.table()
                            .output(header.process, header.channel, Bytes::from(payload));
                    kept.map_err(io::Error::other)?;
                }
                MESSAGE => self.heed(wire::decode(&payload).map_err(io::Error::other)?)?,
                _ => return Err(io::Error::other(Malformed)),
            }
        }
    }

    fn heed(&self, notice: Notice) -> io::Result<()> {
        match notice {
            Notice::Ready { .. } => drop(self.ready.send_replace(true)),
            Notice::Started { process, .. } => self.table().answer(process, Ok(None)),
            Notice::Listening { process, at } => self.table().answer(process, Ok(Some(at))),
            Notice::Accepted { listening, process } => {
                let accepted = self.table().accept(listening, process);
                if !accepted.map_err(io::Error::other)? {
                    self.hang_up(process);
                }
            }
            Notice::Failed {
                process,
                stage,
                errno,
            } => self.table().answer(process, Err((stage, errno))),
            Notice::Finished { process, channel } => self.table().finish(process, channel),
            Notice::Granted { process, bytes } => self
                .table()
                .grant(process, bytes)
                .map_err(io::Error::other)?,
            Notice::Refused { process } => self.table().refuse(process),
            Notice::Exited { process, status } => self.table().exit(process, status),
        }
        Ok(())
    }
}

fn frame(channel: u8, process: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        channel,
        process,
        length: u32::try_from(payload.len()).unwrap_or(u32::MAX),
    };
    [&header.bytes(), payload].concat()
}

struct Writer<W> {
    orders: mpsc::UnboundedReceiver<Vec<u8>>,
    data: mpsc::Receiver<Vec<u8>>,
    to: BufWriter<W>,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Orders go first, so that a signal does not wait behind a gigabyte of input.
    async fn run(&mut self, beat: Beat) -> io::Result<()> {
        let mut pause = match beat {
            Beat::Never => None,
            Beat::Every(period) => Some(tokio::time::interval(period)),
        };
        loop {
            let next = match self.orders.try_recv().or_else(|_| self.data.try_recv()) {
                Ok(next) => next,
                Err(_) => {
                    self.to.flush().await?;
                    tokio::select! {
                        biased;
                        Some(order) = self.orders.recv() => order,
                        Some(data) = self.data.recv() => data,
                        () = tick(&mut pause) => frame(MESSAGE, 0, &wire::encode(&Order::Beat {})),
                        else => return Ok(()),
                    }
                }
            };
            self.to.write_all(&next).await?;
        }
    }
}

async fn tick(pause: &mut Option<tokio::time::Interval>) {
    match pause {
        Some(pause) => drop(pause.tick().await),
        None => std::future::pending().await,
    }
}
