//! One conversation with a file server: many requests under way, each reply to the one who asked.
//!
//! ```text
//! callers ──send──▶ [ queue ] ──▶ writer task ──▶ server ──▶ reader task ──by id──▶ the caller that waits
//! ```
//!
//! Bounds: [`IN_FLIGHT`] requests without a reply, [`QUEUE`] packets that wait to be written, one packet of at most
//! [`PACKET_MAX`] being read. A caller that goes away leaves nothing behind: its reply is dropped, and a handle that the
//! reply carries is closed.

use std::{
    any::Any,
    collections::HashMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinSet,
};

use super::wire::{
    self, CHUNK_PLAIN, Decoder, Malformed, PACKET_MAX, Packet, Reply, Request, kind,
};
use crate::process::{Reader, Writer};

/// Requests without a reply; with the largest chunks about 16 MiB.
const IN_FLIGHT: usize = 64;
/// Packets that wait to be written.
const QUEUE: usize = 16;
/// Small packets are gathered up to this size before they are written.
const GATHER_BYTES: usize = 64 << 10;
/// The largest piece of a file that is asked for at once, whatever the server would give.
const CHUNK_MAX: usize = 255 << 10;

/// Why a conversation ended.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Lost {
    #[error("the connection to the file server has ended")]
    Ended,
    #[error("the connection to the file server broke")]
    Io(#[source] Arc<io::Error>),
    #[error(
        "what answered is no file server of version 3; does the account's start-up file print something?"
    )]
    NoServer,
    #[error("the file server sent a packet that makes no sense")]
    Malformed(#[from] Malformed),
    #[error("the file server sent {0} bytes as one packet")]
    TooLong(usize),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof => Self::Ended,
            _ => Self::Io(Arc::new(error)),
        }
    }
}

/// What the server can do besides version 3.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub(super) posix_rename: bool,
    pub(super) hardlink: bool,
    pub(super) fsync: bool,
    pub(super) lsetstat: bool,
    pub(super) statvfs: bool,
    pub(super) limits: bool,
    /// Our own server: exact error numbers, the whole of `stat(2)`, access, watching.
    pub(super) ours: bool,
}

/// How much of a file one request may carry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunks {
    pub(super) read: usize,
    pub(super) write: usize,
}

pub(super) struct Session {
    shared: Arc<Shared>,
    packets: mpsc::Sender<Packet>,
    in_flight: Arc<Semaphore>,
    pub(super) extensions: Extensions,
    pub(super) chunks: Chunks,
    /// Reader and writer; they end with the session.
    _tasks: JoinSet<()>,
    /// What keeps the stream's other end alive.
    _guard: Box<dyn Any + Send + Sync>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Handles that nobody holds any more, and the writer's bell.
    unowned: Mutex<Vec<Bytes>>,
    has_unowned: Notify,
}

#[derive(Default)]
struct Waiting {
    callers: HashMap<u32, Caller>,
    next: u32,
    lost: Option<Lost>,
}

struct Caller {
    tell: oneshot::Sender<Result<Reply, Lost>>,
    /// Given back when the reply is there, whether somebody still waits for it or not.
    _permit: OwnedSemaphorePermit,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reply that is on its way.
pub(super) struct Pending(oneshot::Receiver<Result<Reply, Lost>>);

impl Pending {
    /// As [`Pending::reply`], without giving it up when the wait is cancelled.
    pub(super) async fn wait(&mut self) -> Result<Reply, Lost> {
        (&mut self.0).await.unwrap_or(Err(Lost::Ended))
    }

    pub(super) async fn reply(self) -> Result<Reply, Lost> {
        self.0.await.unwrap_or(Err(Lost::Ended))
    }
}

impl Session {
    /// Greets the server and asks for its limits.
    pub(super) async fn open(
        mut reader: Reader,
        mut writer: Writer,
        guard: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, Lost> {
        writer.write_all(&wire::init()).await?;
        writer.flush().await?;
        let extensions = greeting(&mut reader).await?;
        let shared = Arc::new(Shared::default());
        let (packets, queue) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        tasks.spawn(write_all(Arc::clone(&shared), queue, writer));
        tasks.spawn(read_all(Arc::clone(&shared), reader));
        let mut session = Self {
            shared,
            packets,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT)),
            extensions,
            chunks: Chunks {
                read: CHUNK_PLAIN,
                write: CHUNK_PLAIN,
            },
            _tasks: tasks,
            _guard: guard,
        };
        session.learn_limits().await?;
        Ok(session)
    }

    async fn learn_limits(&mut self) -> Result<(), Lost> {
        if !self.extensions.limits {
            return Ok(());
        }
        let reply = self.ask(Request::extended("limits@openssh.com")).await?;
        if let Reply::Extended(body) = reply {
            let mut from = Decoder(body);
            from.u64()?;
            let bound = |said: u64| match usize::try_from(said) {
                Ok(0) | Err(_) => CHUNK_PLAIN,
                Ok(said) => said.min(CHUNK_MAX),
            };
            self.chunks.read = bound(from.u64()?);
            self.chunks.write = bound(from.u64()?);
        }
        Ok(())
    }

    /// Whether it can still be used.
    pub(super) fn is_alive(&self) -> bool {
        locked(&self.shared.waiting).lost.is_none()
    }

    /// Queues a request. Requests are performed in the order in which they were queued.
    pub(super) async fn send(&self, request: Request) -> Result<Pending, Lost> {
        let permit = Arc::clone(&self.in_flight).acquire_owned().await;
        let permit = permit.map_err(|_| Lost::Ended)?;
        let Ok(place) = self.packets.reserve().await else {
            let lost = locked(&self.shared.waiting).lost.clone();
            return Err(lost.unwrap_or(Lost::Ended));
        };
        let (tell, told) = oneshot::channel();
        let caller = Caller {
            tell,
            _permit: permit,
        };
        let id = self.shared.register(caller)?;
        place.send(request.finish(id));
        Ok(Pending(told))
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Reply, Lost> {
        self.send(request).await?.reply().await
    }

    /// Closes a handle without waiting for what the server says to it.
    pub(super) fn forget(&self, handle: Bytes) {
        self.shared.forget(handle);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("extensions", &self.extensions)
            .field("chunks", &self.chunks)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn register(&self, caller: Caller) -> Result<u32, Lost> {
        let mut waiting = locked(&self.waiting);
        if let Some(lost) = &waiting.lost {
            return Err(lost.clone());
        }
        // No more than `IN_FLIGHT` are taken, so a free one is near.
        while waiting.next == u32::MAX || waiting.callers.contains_key(&waiting.next) {
            waiting.next = waiting.next.wrapping_add(1);
        }
        let id = waiting.next;
        waiting.next = id.wrapping_add(1);
        waiting.callers.insert(id, caller);
        Ok(id)
    }

    fn forget(&self, handle: Bytes) {
        locked(&self.unowned).push(handle);
        self.has_unowned.notify_one();
    }

    fn deliver(&self, id: u32, reply: Reply) {
        let caller = locked(&self.waiting).callers.remove(&id);
        let Some(caller) = caller else { return };
        if let Err(Ok(Reply::Handle(handle))) = caller.tell.send(Ok(reply)) {
            self.forget(handle);
        }
    }

    fn lose(&self, lost: &Lost) {
        let callers = {
            let mut waiting = locked(&self.waiting);
            waiting.lost.get_or_insert_with(|| lost.clone());
            std::mem::take(&mut waiting.callers)
        };
        for caller in callers.into_values() {
            let _ = caller.tell.send(Err(lost.clone()));
        }
    }
}

/// Reads the version and what the server can do besides.
async fn greeting(reader: &mut Reader) -> Result<Extensions, Lost> {
    let length = usize::try_from(reader.read_u32().await?).unwrap_or(usize::MAX);
    if !(5..=PACKET_MAX).contains(&length) {
        return Err(Lost::NoServer);
    }
    let mut packet = vec![0; length];
    reader.read_exact(&mut packet).await?;
    let mut from = Decoder(packet.into());
    if from.u8()? != kind::VERSION || from.u32()? != wire::VERSION {
        return Err(Lost::NoServer);
    }
    let mut found = Extensions::default();
    while !from.is_empty() {
        let (name, value) = (from.string()?, from.string()?);
        match (&name[..], &value[..]) {
            (b"posix-rename@openssh.com", b"1") => found.posix_rename = true,
            (b"hardlink@openssh.com", b"1") => found.hardlink = true,
            (b"fsync@openssh.com", b"1") => found.fsync = true,
            (b"lsetstat@openssh.com", b"1") => found.lsetstat = true,
            (b"statvfs@openssh.com", b"2") => found.statvfs = true,
            (b"limits@openssh.com", b"1") => found.limits = true,
            (b"errno@bulkhead", b"1") => found.ours = true,
            _ => {}
        }
    }
    Ok(found)
}

async fn read_all(shared: Arc<Shared>, reader: Reader) {
    let Err(lost) = read(&shared, reader).await;
    shared.lose(&lost);
}

async fn read(shared: &Shared, mut reader: Reader) -> Result<std::convert::Infallible, Lost> {
    let mut buffer = BytesMut::new();
    loop {
        while let Some(packet) = next_packet(&mut buffer)? {
            let (id, reply) = wire::reply(packet)?;
            shared.deliver(id, reply);
        }
        buffer.reserve(GATHER_BYTES);
        if reader.read_buf(&mut buffer).await? == 0 {
            return Err(Lost::Ended);
        }
    }
}

/// Cuts one packet off the front, where it is complete, and makes room for it where it is not.
fn next_packet(buffer: &mut BytesMut) -> Result<Option<Bytes>, Lost> {
    let Some((length, _)) = buffer.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > PACKET_MAX {
        return Err(Lost::TooLong(length));
    }
    if buffer.len() < 4 + length {
        buffer.reserve(4 + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

async fn write_all(shared: Arc<Shared>, queue: mpsc::Receiver<Packet>, writer: Writer) {
    match write(&shared, queue, writer).await {
        Ok(()) => shared.lose(&Lost::Ended),
        Err(error) => shared.lose(&error.into()),
    }
}

async fn write(
    shared: &Shared,
    mut queue: mpsc::Receiver<Packet>,
    mut writer: Writer,
) -> io::Result<()> {
    let mut gathered = Vec::with_capacity(GATHER_BYTES);
    loop {
        tokio::select! {
            packet = queue.recv() => match packet {
                Some(packet) => put(&mut gathered, &mut writer, packet).await?,
                None => return Ok(()),
            },
            () = shared.has_unowned.notified() => {}
        }
        while gathered.len() < GATHER_BYTES
            && let Ok(packet) = queue.try_recv()
        {
            put(&mut gathered, &mut writer, packet).await?;
        }
        let unowned = std::mem::take(&mut *locked(&shared.unowned));
        for handle in unowned {
            // Nobody waits for this id, which is given to nobody.
            let close = Request::new(kind::CLOSE).string(&handle).finish(u32::MAX);
            put(&mut gathered, &mut writer, close).await?;
        }
        writer.write_all(&gathered).await?;
        gathered.clear();
        writer.flush().await?;
    }
}

/// Gathers what is small; what is large is written without being copied.
async fn put(gathered: &mut Vec<u8>, writer: &mut Writer, packet: Packet) -> io::Result<()> {
    gathered.extend_from_slice(&packet.head);
    if packet.data.len() <= GATHER_BYTES / 4 {
        gathered.extend_from_slice(&packet.data);
        return Ok(());
    }
    writer.write_all(gathered).await?;
    gathered.clear();
    writer.write_all(&packet.data).await
}
