//! Streams from a listening port or socket of a place, all of them over one pair of pipes.
//!
//! ```text
//! helper ──frames──▶ demux task ──▶ a stream's queue ──▶ its task ──▶ the stream's owner
//!        ◀──frames── writer task ◀── its other task ◀────────────────┘
//! ```
//!
//! Of each stream at most a window is under way in each direction, so a stream that nobody reads holds no other one up.

use std::{
    any::Any,
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bulkhead_init::wire::{
    BYTES, CARRIED_HEADER, CARRIED_MAX, CLOSED, Carried, ENDED, GRANTED, OPENED, STOP,
    STREAM_WINDOW, STREAMS_MAX,
};
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream as Near, ReadHalf, WriteHalf},
    sync::{Semaphore, mpsc},
};
use tokio_util::task::TaskTracker;

use super::{PIPED, Place, argument, failed, status};
use crate::{
    DuplexStream, Endpoint, HostError, Listener,
    process::{Reader, Writer},
};

/// Frames that wait to be written.
const QUEUE: usize = 16;

pub(crate) async fn listen(
    place: &dyn Place,
    at: Endpoint,
) -> Result<Box<dyn Listener>, HostError> {
    let argument = argument(&at).map_err(failed(place, &at))?;
    let arguments = vec!["listen".to_owned(), argument];
    let mut process = place.helper(arguments, PIPED).await?;
    let (Some(mut reader), Some(writer)) = (process.stdout.take(), process.stdin.take()) else {
        return Err(HostError::Gone { host: place.name() });
    };
    let port = status(&mut reader).await.map_err(failed(place, &at))?;
    let mut endpoint = at;
    if let Endpoint::Tcp(address) = &mut endpoint {
        address.set_port(port);
    }
    let (frames, queue) = mpsc::channel(QUEUE);
    let (accepted, accepts) = mpsc::channel(STREAMS_MAX);
    let tasks = TaskTracker::new();
    tasks.spawn(write_all(queue, writer, Box::new(process.control)));
    let demux = Demux {
        streams: HashMap::new(),
        frames: frames.downgrade(),
        accepted,
        tasks: tasks.clone(),
    };
    tasks.spawn(demux.run(reader));
    Ok(Box::new(Carrying {
        host: place.name(),
        endpoint,
        accepts,
        frames,
        tasks,
    }))
}

type Frame = (u8, u32, Bytes);

struct Carrying {
    host: String,
    endpoint: Endpoint,
    accepts: mpsc::Receiver<Near>,
    frames: mpsc::Sender<Frame>,
    tasks: TaskTracker,
}

#[async_trait]
impl Listener for Carrying {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    async fn accept(&mut self) -> Result<DuplexStream, HostError> {
        match self.accepts.recv().await {
            Some(stream) => Ok(Box::new(stream)),
            None => Err(HostError::Gone {
                host: self.host.clone(),
            }),
        }
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        let frames = self.frames.clone();
        self.tasks.spawn(async move {
            let _ = frames.send((STOP, 0, Bytes::new())).await;
        });
    }
}

/// Ends, and with it the helper, when neither the listener nor a stream is left.
async fn write_all(
    mut queue: mpsc::Receiver<Frame>,
    mut writer: Writer,
    _process: Box<dyn Any + Send>,
) {
    let mut bytes = Vec::new();
    while let Some((kind, stream, payload)) = queue.recv().await {
        bytes.clear();
        Carried::encode(kind, stream, &payload, &mut bytes);
        let written = writer.write_all(&bytes).await;
        if written.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

/// What the demultiplexer knows of a stream.
struct Known {
    /// Bounded by the window that the helper keeps to.
    bytes: mpsc::UnboundedSender<Bytes>,
    waiting: Arc<Mutex<usize>>,
    credit: Arc<Semaphore>,
}

struct Demux {
    streams: HashMap<u32, Known>,
    frames: mpsc::WeakSender<Frame>,
    accepted: mpsc::Sender<Near>,
    tasks: TaskTracker,
}

impl Demux {
    async fn run(mut self, mut reader: Reader) {
        while let Ok((frame, payload)) = next(&mut reader).await {
            match frame.kind {
                OPENED => self.open(frame.stream),
                BYTES if !self.bytes(frame.stream, payload.clone()) => return,
                GRANTED => {
                    let bytes = payload[..].try_into().map(u32::from_be_bytes);
                    let bytes = usize::try_from(bytes.unwrap_or(0)).unwrap_or(0);
                    if let Some(known) = self.streams.get(&frame.stream) {
                        known.credit.add_permits(bytes.min(STREAM_WINDOW));
                    }
                }
                ENDED => {
                    // The stream's own task sees its queue end, once it has passed on what is in it.
                    if let Some(known) = self.streams.get_mut(&frame.stream) {
                        known.bytes = mpsc::unbounded_channel().0;
                    }
                }
                CLOSED => {
                    if let Some(known) = self.streams.remove(&frame.stream) {
                        known.credit.close();
                    }
                }
                _ => {}
            }
        }
        for known in self.streams.values() {
            known.credit.close();
        }
    }

    fn open(&mut self, number: u32) {
        let Some(frames) = self.frames.upgrade() else {
            return;
        };
        let (ours, theirs) = tokio::io::duplex(CARRIED_MAX);
        // Where the listener is dropped, nobody will ever have this stream: its tasks see that and say so.
        let _ = self.accepted.try_send(theirs);
        let (reads, writes) = tokio::io::split(ours);
        let (bytes, queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(0));
        let credit = Arc::new(Semaphore::new(STREAM_WINDOW));
        let outwards = outwards(number, reads, Arc::clone(&credit), frames.clone());
        self.tasks.spawn(outwards);
        self.tasks
            .spawn(inwards(number, queue, writes, Arc::clone(&waiting), frames));
        self.streams.insert(
            number,
            Known {
                bytes,
                waiting,
                credit,
            },
        );
    }

    /// False where the helper does not keep to the window.
    fn bytes(&self, stream: u32, payload: Bytes) -> bool {
        let Some(known) = self.streams.get(&stream) else {
            return true;
        };
        let mut waiting = known.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += payload.len();
        // An owner who reads no more has said so to the helper.
        let _ = known.bytes.send(payload);
        *waiting <= STREAM_WINDOW
    }
}

async fn next(reader: &mut Reader) -> io::Result<(Carried, Bytes)> {
    let mut header = [0; CARRIED_HEADER];
    reader.read_exact(&mut header).await?;
    let frame = Carried::decode(&header).ok_or(io::ErrorKind::InvalidData)?;
    let mut payload = vec![0; frame.length];
    reader.read_exact(&mut payload).await?;
    Ok((frame, payload.into()))
}

/// From the helper to the stream's owner.
async fn inwards(
    number: u32,
    mut queue: mpsc::UnboundedReceiver<Bytes>,
    mut writes: WriteHalf<Near>,
    waiting: Arc<Mutex<usize>>,
    frames: mpsc::Sender<Frame>,
) {
    while let Some(bytes) = queue.recv().await {
        if writes.write_all(&bytes).await.is_err() {
            let _ = frames.send((CLOSED, number, Bytes::new())).await;
            return;
        }
        *waiting.lock().unwrap_or_else(PoisonError::into_inner) -= bytes.len();
        let granted = u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes();
        let granted = Bytes::copy_from_slice(&granted);
        if frames.send((GRANTED, number, granted)).await.is_err() {
            return;
        }
    }
    let _ = writes.shutdown().await;
}

/// From the stream's owner to the helper.
async fn outwards(
    number: u32,
    mut reads: ReadHalf<Near>,
    credit: Arc<Semaphore>,
    frames: mpsc::Sender<Frame>,
) {
    let mut buffer = vec![0; CARRIED_MAX];
    loop {
        let read = match reads.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        let wanted = u32::try_from(read).unwrap_or(u32::MAX);
        let Ok(permits) = credit.acquire_many(wanted).await else {
            return;
        };
        permits.forget();
        let bytes = Bytes::copy_from_slice(&buffer[..read]);
        if frames.send((BYTES, number, bytes)).await.is_err() {
            return;
        }
    }
    let _ = frames.send((ENDED, number, Bytes::new())).await;
}
