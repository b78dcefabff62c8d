//! The conversation between the broker and a zygote: packets over one socket pair, with open files beside them.
//!
//! | packet | way | beside it |
//! |---|---|---|
//! | `Fork` | ↓ | one *entrance* per process to make, at most [`ENTRANCES_MAX`] |
//! | `Ready` | ↑ | once, when the zygote stands, locked down |
//! | `Forked { pid }` | ↑ | the broker's end of the pipe, a pidfd |
//! | `ForkFailed { errno }` | ↑ | |
//! | `Exited { pid, status }` | ↑ | |
//!
//! Each entrance of a `Fork` is answered by exactly one `Forked` or `ForkFailed`, in the order of the entrances. An entrance is
//! a file, open for writing, into which the new process writes `0` before anything else: the file that moves a writer into
//! a memory group (`tasks` in cgroup v1, `cgroup.procs` in v2). So a process is in its group before it sees any plugin, no
//! number of a process is ever passed on, and on v1 the kernel takes the move of a single writer without its global lock.
//!
//! The end of the conversation, from either side, is the end of the zygote and of every process it made.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// How many processes one request makes at most.
pub const ENTRANCES_MAX: usize = 16;

const PACKET_MAX: usize = 16;
const FORK: u8 = 1;
const READY: u8 = 16;
const FORKED: u8 = 17;
const FORK_FAILED: u8 = 18;
const EXITED: u8 = 19;

/// A process's number in the zygote's pid namespace: a name within this conversation, and nothing outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildId(pub u32);

/// How a process ended, as `waitpid` told the zygote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Code(i32),
    /// The signal's number.
    Signal(i32),
}

impl Ending {
    /// From a raw wait status.
    pub fn from_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code((status >> 8) & 0xff),
            signal => Self::Signal(signal),
        }
    }
}

/// A process that was forked ahead of need. It says `Ready` on its pipe when it is locked down.
#[derive(Debug)]
pub struct Child {
    pub id: ChildId,
    /// The broker's end of the pipe: a stream, non-blocking, closed on exec.
    pub pipe: OwnedFd,
    /// To kill the process by, and readable from its end on.
    pub pidfd: OwnedFd,
}

/// What a zygote says.
#[derive(Debug)]
pub enum Event {
    Ready,
    Forked(Child),
    /// There is no process for this entrance: the kernel's error number of the fork.
    ForkFailed {
        errno: i32,
    },
    /// The process has been reaped: it is in no group any more.
    Exited {
        id: ChildId,
        ending: Ending,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// With [`io::ErrorKind::WouldBlock`], there is nothing to read now, or no room to write.
    #[error("speaking with the zygote")]
    Io(#[from] io::Error),
    #[error("a packet of the zygote's conversation cannot be read")]
    Malformed,
    #[error("{0} processes asked for at once, at most {ENTRANCES_MAX} can be")]
    TooMany(usize),
}

impl From<rustix::io::Errno> for ControlError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// The broker's end. Non-blocking, so that it can be registered with any runtime; none is needed.
#[derive(Debug)]
pub struct Control(OwnedFd);

/// The zygote's end. Blocking.
#[derive(Debug)]
pub struct ZygoteEnd(OwnedFd);

/// What the zygote reads.
#[derive(Debug)]
pub struct Fork {
    pub entrances: Vec<OwnedFd>,
}

/// Both ends of a new conversation.
pub fn pair() -> io::Result<(Control, ZygoteEnd)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((Control(ours), ZygoteEnd(theirs)))
}

impl Control {
    /// Asks for one process per entrance.
    pub fn fork(&self, entrances: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        if entrances.len() > ENTRANCES_MAX {
            return Err(ControlError::TooMany(entrances.len()));
        }
        send(&self.0, &[FORK], entrances)
    }

    /// What the zygote said next; none once it has ended.
    pub fn receive(&self) -> Result<Option<Event>, ControlError> {
        let (packet, files) = receive(&self.0)?;
        if packet.is_empty() {
            return Ok(None);
        }
        event(&packet, files).map(Some)
    }
}

impl ZygoteEnd {
    /// Takes the socket over from whoever started this process.
    pub fn from_socket(socket: OwnedFd) -> Self {
        Self(socket)
    }

    pub fn into_socket(self) -> OwnedFd {
        self.0
    }

    /// The next request; none when the broker is gone.
    pub fn receive(&self) -> Result<Option<Fork>, ControlError> {
        let (packet, entrances) = receive(&self.0)?;
        match packet.as_slice() {
            [] => Ok(None),
            [FORK] => Ok(Some(Fork { entrances })),
            _ => Err(ControlError::Malformed),
        }
    }

    pub fn ready(&self) -> Result<(), ControlError> {
        send(&self.0, &[READY], &[])
    }

    pub fn forked(
        &self,
        id: ChildId,
        pipe: BorrowedFd<'_>,
        pidfd: BorrowedFd<'_>,
    ) -> Result<(), ControlError> {
        let [a, b, c, d] = id.0.to_le_bytes();
        send(&self.0, &[FORKED, a, b, c, d], &[pipe, pidfd])
    }

    pub fn fork_failed(&self, errno: i32) -> Result<(), ControlError> {
        let [a, b, c, d] = errno.to_le_bytes();
        send(&self.0, &[FORK_FAILED, a, b, c, d], &[])
    }

    pub fn exited(&self, id: ChildId, status: i32) -> Result<(), ControlError> {
        let [a, b, c, d] = id.0.to_le_bytes();
        let [e, f, g, h] = status.to_le_bytes();
        send(&self.0, &[EXITED, a, b, c, d, e, f, g, h], &[])
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Control {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for ZygoteEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn event(packet: &[u8], files: Vec<OwnedFd>) -> Result<Event, ControlError> {
    let files_count = files.len();
    match *packet {
        [READY] if files_count == 0 => Ok(Event::Ready),
        [FORKED, a, b, c, d] => {
            let [pipe, pidfd] =
                <[OwnedFd; 2]>::try_from(files).map_err(|_| ControlError::Malformed)?;
            let id = ChildId(u32::from_le_bytes([a, b, c, d]));
            Ok(Event::Forked(Child { id, pipe, pidfd }))
        }
        [FORK_FAILED, a, b, c, d] if files_count == 0 => Ok(Event::ForkFailed {
            errno: i32::from_le_bytes([a, b, c, d]),
        }),
        [EXITED, a, b, c, d, e, f, g, h] if files_count == 0 => Ok(Event::Exited {
            id: ChildId(u32::from_le_bytes([a, b, c, d])),
            ending: Ending::from_status(i32::from_le_bytes([e, f, g, h])),
        }),
        _ => Err(ControlError::Malformed),
    }
}

fn send(socket: &OwnedFd, packet: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ENTRANCES_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(ControlError::TooMany(files.len()));
    }
    let parts = [IoSlice::new(packet)];
    rustix::io::retry_on_intr(|| sendmsg(socket, &parts, &mut beside, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// An empty packet is the end.
fn receive(socket: &OwnedFd) -> Result<(Vec<u8>, Vec<OwnedFd>), ControlError> {
    let mut bytes = [0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ENTRANCES_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC)
    });
    let received = match received {
        // What closes with unread packets in it says so by a reset; it is closed either way.
        Err(rustix::io::Errno::CONNRESET) => return Ok((Vec::new(), Vec::new())),
        other => other?,
    };
    let files = beside
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(ControlError::Malformed);
    }
    Ok((bytes[..received.bytes].to_vec(), files))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    /// D8: every packet arrives as what it was sent as, with its files.
    #[test]
    fn d8_packets_arrive_whole_with_their_files() {
        let (control, zygote) = pair().unwrap();
        zygote.ready().unwrap();
        let (pipe, pidfd) = (file(), file());
        zygote
            .forked(ChildId(70_000), pipe.as_fd(), pidfd.as_fd())
            .unwrap();
        zygote.fork_failed(11).unwrap();
        zygote.exited(ChildId(7), 9).unwrap();
        zygote.exited(ChildId(8), 3 << 8).unwrap();
        assert!(matches!(control.receive().unwrap(), Some(Event::Ready)));
        let Some(Event::Forked(child)) = control.receive().unwrap() else {
            panic!("no child");
        };
        assert_eq!(child.id, ChildId(70_000));
        let failed = control.receive().unwrap();
        assert!(matches!(failed, Some(Event::ForkFailed { errno: 11 })));
        for expected in [
            (ChildId(7), Ending::Signal(9)),
            (ChildId(8), Ending::Code(3)),
        ] {
            let Some(Event::Exited { id, ending }) = control.receive().unwrap() else {
                panic!("no ending");
            };
            assert_eq!((id, ending), expected);
        }
        let nothing = control.receive().unwrap_err();
        assert!(
            matches!(&nothing, ControlError::Io(error) if error.kind() == io::ErrorKind::WouldBlock)
        );
        drop(zygote);
        assert!(control.receive().unwrap().is_none());
    }

    /// D8: as many entrances as may be at once arrive; more are refused before anything is sent.
    #[test]
    fn d8_a_request_carries_one_entrance_per_process() {
        let (control, zygote) = pair().unwrap();
        let files: Vec<OwnedFd> = (0..=ENTRANCES_MAX).map(|_| file()).collect();
        let borrowed: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        control.fork(&borrowed[..ENTRANCES_MAX]).unwrap();
        let request = zygote.receive().unwrap().unwrap();
        assert_eq!(request.entrances.len(), ENTRANCES_MAX);
        let refused = control.fork(&borrowed).unwrap_err();
        assert!(matches!(refused, ControlError::TooMany(17)), "{refused}");
        drop(control);
        assert!(zygote.receive().unwrap().is_none());
    }

    proptest! {
        /// D9: no packet makes the broker panic, and none with the wrong files is taken.
        #[test]
        fn d9_any_packet_is_an_event_or_an_error(packet in proptest::collection::vec(any::<u8>(), 1..20)) {
            let (control, zygote) = pair().unwrap();
            send(&zygote.0, &packet, &[]).unwrap();
            if let Ok(Some(event)) = control.receive() {
                prop_assert!(!matches!(event, Event::Forked(_)));
            }
        }
    }
}
