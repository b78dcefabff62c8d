//! The protocol of OpenSSH's control socket, as far as it is needed: sessions, forwards, the end.
//!
//! It is spoken here rather than through a crate or the `ssh` program because only so the exit of a process by a signal can
//! be told from an exit code, a terminal of the caller's own can be handed over, and no process is started for each command.
//! The format is in OpenSSH's `PROTOCOL.mux`. One connection to the socket serves one session; closing it closes the session.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::UnixStream,
};

const VERSION: u32 = 4;
/// No answer is longer; the longest carry a sentence.
const PACKET_MAX: usize = 64 << 10;
/// In the place of a port: the host is the path of a socket.
const PORT_OF_A_SOCKET: u32 = 0xffff_fffe;
const NO_ESCAPE_CHARACTER: u32 = u32::MAX;

mod kind {
    pub(super) const HELLO: u32 = 1;
    pub(super) const NEW_SESSION: u32 = 0x1000_0002;
    pub(super) const ALIVE_CHECK: u32 = 0x1000_0004;
    pub(super) const TERMINATE: u32 = 0x1000_0005;
    pub(super) const OPEN_FORWARD: u32 = 0x1000_0006;
    pub(super) const CLOSE_FORWARD: u32 = 0x1000_0007;
    pub(super) const OK: u32 = 0x8000_0001;
    pub(super) const PERMISSION_DENIED: u32 = 0x8000_0002;
    pub(super) const FAILURE: u32 = 0x8000_0003;
    pub(super) const EXIT: u32 = 0x8000_0004;
    pub(super) const ALIVE: u32 = 0x8000_0005;
    pub(super) const SESSION_OPENED: u32 = 0x8000_0006;
    pub(super) const REMOTE_PORT: u32 = 0x8000_0007;
}

#[derive(Debug, thiserror::Error)]
pub(super) enum MuxError {
    #[error("the ssh connection refused it: {0}")]
    Refused(String),
    #[error("the ssh connection has ended")]
    Closed,
    #[error("talking to the ssh connection")]
    Io(#[source] io::Error),
    #[error("the ssh connection's control socket sent something that makes no sense")]
    Malformed,
}

impl From<io::Error> for MuxError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotFound => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// What a session runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Runs<'a> {
    Command(&'a str),
    /// With this type of terminal.
    InTerminal(&'a str, &'a str),
    Subsystem(&'a str),
}

/// One end of a forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(String, u16),
    Socket(String),
}

/// Who listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The master here; the machine connects.
    ToMachine,
    /// The machine; the master here connects.
    FromMachine,
}

/// A place that listens, and where each connection to it leads.
#[derive(Debug, Clone)]
pub(super) struct Forward {
    pub(super) direction: Direction,
    pub(super) listen: Place,
    pub(super) to: Place,
}

/// A connection to the control socket.
#[derive(Debug)]
pub(super) struct Mux {
    stream: UnixStream,
    next: u32,
}

struct Packet(Vec<u8>);

impl Packet {
    fn new(kind: u32) -> Self {
        Self(vec![0; 4]).u32(kind)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn string(self, text: &str) -> Self {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let mut packet = self.u32(length);
        packet.0.extend_from_slice(text.as_bytes());
        packet
    }

    fn place(self, place: &Place) -> Self {
        match place {
            Place::Tcp(host, port) => self.string(host).u32((*port).into()),
            Place::Socket(path) => self.string(path).u32(PORT_OF_A_SOCKET),
        }
    }

    fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// An answer: its kind and what follows.
struct Answer {
    kind: u32,
    body: Vec<u8>,
}

impl Answer {
    fn number(&self, index: usize) -> Result<u32, MuxError> {
        let bytes = self.body.get(index * 4..index * 4 + 4);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).ok_or(MuxError::Malformed)
    }

    /// The second number, where the answer is of this kind; the words of a refusal otherwise.
    fn second(&self, wanted: u32) -> Result<u32, MuxError> {
        match self.kind {
            kind if kind == wanted => self.number(1),
            kind::FAILURE | kind::PERMISSION_DENIED => {
                let words = self.body.get(8..).unwrap_or_default();
                Err(MuxError::Refused(
                    String::from_utf8_lossy(words).into_owned(),
                ))
            }
            _ => Err(MuxError::Malformed),
        }
    }
}

impl Mux {
    pub(super) async fn connect(socket: &Path) -> Result<Self, MuxError> {
        let mut stream = UnixStream::connect(socket).await?;
        let hello = Packet::new(kind::HELLO).u32(VERSION).finish();
        stream.write_all(&hello).await?;
        let mut mux = Self { stream, next: 0 };
        let answer = mux.answer().await?;
        if answer.kind != kind::HELLO || answer.number(0)? != VERSION {
            return Err(MuxError::Malformed);
        }
        Ok(mux)
    }

    /// Opens a session with these streams.
    pub(super) async fn session(
        &mut self,
        runs: Runs<'_>,
        streams: [BorrowedFd<'_>; 3],
    ) -> Result<(), MuxError> {
        let (terminal, is_subsystem, command) = match runs {
            Runs::Command(command) => (None, 0, command),
            Runs::InTerminal(terminal, command) => (Some(terminal), 0, command),
            Runs::Subsystem(name) => (None, 1, name),
        };
        // The agent is forwarded only where the user's configuration says so: the master checks it.
        let (wants_x11, wants_agent) = (0, u32::from(is_subsystem == 0));
        let packet = self
            .request(kind::NEW_SESSION)
            .string("")
            .u32(u32::from(terminal.is_some()))
            .u32(wants_x11)
            .u32(wants_agent)
            .u32(is_subsystem)
            .u32(NO_ESCAPE_CHARACTER)
            .string(terminal.unwrap_or(""))
            .string(command);
        self.stream.write_all(&packet.finish()).await?;
        for stream in streams {
            self.pass(stream).await?;
        }
        self.answer().await?.second(kind::SESSION_OPENED).map(drop)
    }

    /// Waits for a session's end: its exit code, or none where there was none.
    pub(super) async fn exit(&mut self) -> Option<u32> {
        loop {
            match self.answer().await {
                Ok(answer) if answer.kind == kind::EXIT => return answer.number(1).ok(),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits until the master has forgotten the session.
    pub(super) async fn closed(&mut self) {
        while self.answer().await.is_ok() {}
    }

    /// Begins a forward. Where the machine's port was 0, the one that was chosen comes back.
    pub(super) async fn forward(&mut self, forward: &Forward) -> Result<Option<u32>, MuxError> {
        self.ask_forward(kind::OPEN_FORWARD, forward).await
    }

    /// Ends a forward, described as it was begun, but not the streams that came through it.
    pub(super) async fn cancel_forward(&mut self, forward: &Forward) -> Result<(), MuxError> {
        self.ask_forward(kind::CLOSE_FORWARD, forward)
            .await
            .map(drop)
    }

    async fn ask_forward(&mut self, kind: u32, forward: &Forward) -> Result<Option<u32>, MuxError> {
        let direction = match forward.direction {
            Direction::ToMachine => 1,
            Direction::FromMachine => 2,
        };
        let packet = self
            .request(kind)
            .u32(direction)
            .place(&forward.listen)
            .place(&forward.to);
        self.stream.write_all(&packet.finish()).await?;
        let answer = self.answer().await?;
        if answer.kind == kind::OK {
            return Ok(None);
        }
        answer.second(kind::REMOTE_PORT).map(Some)
    }

    /// The master's pid.
    pub(super) async fn master(&mut self) -> Result<u32, MuxError> {
        let packet = self.request(kind::ALIVE_CHECK);
        self.stream.write_all(&packet.finish()).await?;
        self.answer().await?.second(kind::ALIVE)
    }

    /// Ends the master and everything in it.
    pub(super) async fn terminate(&mut self) -> Result<(), MuxError> {
        let packet = self.request(kind::TERMINATE);
        self.stream.write_all(&packet.finish()).await?;
        self.answer().await.map(drop)
    }

    fn request(&mut self, kind: u32) -> Packet {
        let id = self.next;
        self.next = id.wrapping_add(1);
        Packet::new(kind).u32(id)
    }

    async fn answer(&mut self) -> Result<Answer, MuxError> {
        let length = usize::try_from(self.stream.read_u32().await?).unwrap_or(usize::MAX);
        if !(4..=PACKET_MAX).contains(&length) {
            return Err(MuxError::Malformed);
        }
        let kind = self.stream.read_u32().await?;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body).await?;
        Ok(Answer { kind, body })
    }

    /// Hands one open file over, beside a byte of its own.
    async fn pass(&self, file: BorrowedFd<'_>) -> Result<(), MuxError> {
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            let files = [file];
            beside.push(SendAncillaryMessage::ScmRights(&files));
            let byte = [IoSlice::new(&[0])];
            let sent = sendmsg(self.stream.as_fd(), &byte, &mut beside, SendFlags::NOSIGNAL);
            sent.map_err(io::Error::from)
        };
        self.stream.async_io(Interest::WRITABLE, send).await?;
        Ok(())
    }
}
