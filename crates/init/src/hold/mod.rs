//! The holder: keeps a host's processes behind walls that somebody else has built, a container's say.
//!
//! ```text
//! host ──Order, input──▶ fd 0 ┌────────┐ pipes or a terminal ┌─────────┐
//!                             │ holder │ ◀──────────────────▶│ process │ …
//! host ◀─Notice, output─ fd 1 └────────┘                     └─────────┘
//! ```
//!
//! One thread, one `poll`. It never waits for one process or for the host: what cannot be written stays in a queue that the
//! windows of [`bulkhead_init::wire::WINDOW`] bound, and what the host does not take is not read from the process. It is made
//! to be PID 1 of its container, so that its end, which is the end of its input, takes every process along.

mod child;
mod signals;
mod socket;
mod start;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use bulkhead_init::wire::{
    self, ACCEPTED_FROM, ERROR, FRAME_HEADER, FrameHeader, INPUT, MESSAGE, Notice, OUTPUT, Order,
    PROCESSES_MAX, SpawnStage, WINDOW,
};
use child::{Child, Progress};
use signals::Signals;
use socket::Listening;

use crate::sys;

/// What may wait to be written to the host before outputs are left unread.
const WAITING_MAX: usize = 256 << 10;
const READ_SIZE: usize = 64 << 10;

struct Holder {
    /// The beginning of a frame whose rest has not arrived.
    arrived: Vec<u8>,
    waiting: VecDeque<u8>,
    children: BTreeMap<u32, Child>,
    /// Sockets whose connecting has no outcome yet.
    connecting: BTreeMap<u32, OwnedFd>,
    listening: BTreeMap<u32, Listening>,
    last_accepted: u32,
}

/// Which of the polled files became ready.
#[derive(Clone, Copy)]
enum Source {
    Host,
    HostTakes,
    Channel(u32, u8),
    Connecting(u32),
    Listening(u32),
}

/// Serves until the host is gone, or says nothing for `silence_ms` (negative: however long).
pub(crate) fn run(silence_ms: i32) -> io::Result<()> {
    // What runs here is of the same user: without this it could look into and change the holder's memory.
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    let signals = Signals::take()?;
    for standard in [0, 1] {
        set_nonblocking(standard)?;
    }
    let mut holder = Holder {
        arrived: Vec::new(),
        waiting: VecDeque::new(),
        children: BTreeMap::new(),
        connecting: BTreeMap::new(),
        listening: BTreeMap::new(),
        last_accepted: ACCEPTED_FROM,
    };
    // SAFETY: no preconditions.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    holder.tell(&Notice::Ready { uid, gid });
    let served = holder.serve(&signals, silence_ms);
    holder.end();
    served
}

impl Holder {
    fn serve(&mut self, signals: &Signals, silence_ms: i32) -> io::Result<()> {
        let mut heard = now_ms();
        loop {
            self.drain_terminals();
            let (mut polled, sources) = self.polled();
            let left = left_ms(silence_ms, heard);
            if left == Some(0) {
                return Ok(());
            }
            signals.poll(&mut polled, left);
            if signals::asked_to_end() {
                return Ok(());
            }
            if signals::child_ended() {
                self.reap();
            }
            for (entry, source) in polled.iter().zip(sources) {
                if entry.revents == 0 {
                    continue;
                }
                match source {
                    Source::Host => {
                        heard = now_ms();
                        if !self.listen()? {
                            return Ok(());
                        }
                    }
                    Source::HostTakes => self.flush()?,
                    Source::Channel(process, channel) => self.carry(process, channel),
                    Source::Connecting(process) => self.connected(process),
                    Source::Listening(listening) => self.accept(listening),
                }
            }
        }
    }

    fn polled(&self) -> (Vec<libc::pollfd>, Vec<Source>) {
        let mut files = vec![(0, libc::POLLIN, Source::Host)];
        if !self.waiting.is_empty() {
            files.push((1, libc::POLLOUT, Source::HostTakes));
        }
        let room = self.waiting.len() < WAITING_MAX;
        for (process, child) in &self.children {
            let interests = child.interests(room);
            files.extend(
                interests
                    .into_iter()
                    .flatten()
                    .map(|(channel, fd, events)| (fd, events, Source::Channel(*process, channel))),
            );
        }
        for (process, socket) in &self.connecting {
            files.push((
                socket.as_raw_fd(),
                libc::POLLOUT,
                Source::Connecting(*process),
            ));
        }
        for (process, listening) in &self.listening {
            files.push((listening.raw(), libc::POLLIN, Source::Listening(*process)));
        }
        files
            .into_iter()
            .map(|(fd, events, source)| {
                let entry = libc::pollfd {
                    fd,
                    events,
                    revents: 0,
                };
                (entry, source)
            })
            .unzip()
    }

    /// Takes what the host has sent; false at its end.
    fn listen(&mut self) -> io::Result<bool> {
        let length = self.arrived.len();
        self.arrived.resize(length + READ_SIZE, 0);
        let read = sys::read(0, &mut self.arrived[length..]);
        self.arrived.truncate(length + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let arrived = std::mem::take(&mut self.arrived);
        let mut rest = &arrived[..];
        while let Some((header, payload, after)) = frame(rest)? {
            rest = after;
            match header.channel {
                INPUT => self.feed(header.process, payload)?,
                MESSAGE => self.obey(wire::decode(payload).map_err(malformed)?),
                _ => return Err(malformed(wire::Malformed)),
            }
        }
        self.arrived = rest.to_vec();
        Ok(true)
    }

    fn feed(&mut self, process: u32, payload: &[u8]) -> io::Result<()> {
        match self.children.get_mut(&process) {
            Some(child) => child.feed(payload).map_err(malformed)?,
            None => return Ok(()),
        }
        self.carry(process, INPUT);
        Ok(())
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Spawn { process, .. } => self.start(process, &order),
            Order::Signal {
                process,
                group,
                signal,
            } => {
                if let Some(child) = self.children.get(&process) {
                    child.signal(group != 0, signal);
                }
            }
            Order::Resize {
                process,
                rows,
                columns,
            } => {
                if let Some(child) = self.children.get(&process) {
                    child.resize(rows, columns);
                }
            }
            Order::Grant {
                process,
                channel,
                bytes,
            } => {
                if let Some(child) = self.children.get_mut(&process) {
                    child.grant(channel, bytes);
                }
            }
            Order::Finish { process } => {
                if let Some(child) = self.children.get_mut(&process) {
                    child.finish_input();
                }
                self.forget(process);
            }
            Order::Shut { process, channel } => {
                if let Some(child) = self.children.get_mut(&process) {
                    child.shut(channel);
                }
                self.forget(process);
            }
            Order::Release { process } => {
                self.connecting.remove(&process);
                if let Some(child) = self.children.get_mut(&process) {
                    child.release();
                }
                self.forget(process);
            }
            Order::Beat {} => {}
            Order::Connect { process, to } => match socket::begin_connect(&to) {
                Ok(socket) => drop(self.connecting.insert(process, socket)),
                Err(error) => self.failed(process, SpawnStage::Setup {}, &error),
            },
            Order::Listen { process, at } => match Listening::open(&at) {
                Ok((listening, at)) => {
                    self.listening.insert(process, listening);
                    self.tell(&Notice::Listening { process, at });
                }
                Err(error) => self.failed(process, SpawnStage::Setup {}, &error),
            },
            Order::Unlisten { process } => drop(self.listening.remove(&process)),
        }
    }

    fn start(&mut self, process: u32, order: &Order) {
        let started = if self.children.len() < PROCESSES_MAX {
            start::start(order)
        } else {
            Err((
                SpawnStage::Fork {},
                io::Error::from_raw_os_error(libc::EAGAIN),
            ))
        };
        match started {
            Ok(child) => {
                let pid = child.pid().cast_unsigned();
                self.children.insert(process, child);
                self.tell(&Notice::Started { process, pid });
            }
            Err((stage, error)) => self.failed(process, stage, &error),
        }
    }

    fn failed(&mut self, process: u32, stage: SpawnStage, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        self.tell(&Notice::Failed {
            process,
            stage,
            errno,
        });
    }

    fn connected(&mut self, process: u32) {
        let Some(socket) = self.connecting.remove(&process) else {
            return;
        };
        match socket::outcome(&socket) {
            Ok(()) => {
                self.children.insert(process, Child::with_socket(socket));
                self.tell(&Notice::Started { process, pid: 0 });
            }
            Err(error) => self.failed(process, SpawnStage::Setup {}, &error),
        }
    }

    /// Where there is no room for it, a connection is closed at once.
    fn accept(&mut self, listening: u32) {
        let Some(Ok(socket)) = self.listening.get(&listening).map(Listening::accept) else {
            return;
        };
        if self.children.len() >= PROCESSES_MAX {
            return;
        }
        let process = self.last_accepted;
        self.last_accepted = process.wrapping_add(1).max(ACCEPTED_FROM);
        self.children.insert(process, Child::with_socket(socket));
        self.tell(&Notice::Accepted { listening, process });
    }

    /// Moves bytes between a process and the queues.
    fn carry(&mut self, process: u32, channel: u8) {
        let Some(child) = self.children.get_mut(&process) else {
            return;
        };
        match channel {
            INPUT => match child.write_input() {
                Progress::Nothing => {}
                Progress::Moved(bytes) => {
                    self.tell(&Notice::Granted { process, bytes });
                    self.forget(process);
                }
                Progress::Ended => {
                    self.tell(&Notice::Refused { process });
                    self.forget(process);
                }
            },
            _ => {
                let mut buffer = [0; wire::DATA_MAX];
                match child.read_output(channel, &mut buffer) {
                    Progress::Nothing => {}
                    Progress::Moved(bytes) => {
                        self.send(channel, process, &buffer[..bytes as usize]);
                    }
                    Progress::Ended => {
                        self.tell(&Notice::Finished { process, channel });
                        self.forget(process);
                    }
                }
            }
        }
    }

    fn drain_terminals(&mut self) {
        while self.waiting.len() < WAITING_MAX
            && let Some((&process, _)) = self
                .children
                .iter()
                .find(|(_, child)| child.is_terminal_to_drain())
        {
            self.carry(process, OUTPUT);
        }
    }

    /// Buries every dead child, also the adopted ones, and tells the host about its own.
    fn reap(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: the status pointer is valid.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid <= 0 {
                return;
            }
            let known = self.children.iter_mut().find(|(_, child)| child.is(pid));
            let Some((&process, child)) = known else {
                continue;
            };
            child.exited();
            self.tell(&Notice::Exited { process, status });
            self.forget(process);
        }
    }

    /// Drops what is known of a process once nobody can ask for anything more of it.
    fn forget(&mut self, process: u32) {
        if self.children.get(&process).is_some_and(Child::is_over) {
            self.children.remove(&process);
        }
    }

    fn tell(&mut self, notice: &Notice) {
        self.send(MESSAGE, 0, &wire::encode(notice));
    }

    fn send(&mut self, channel: u8, process: u32, payload: &[u8]) {
        let header = FrameHeader {
            channel,
            process,
            length: u32::try_from(payload.len()).unwrap_or(0),
        };
        self.waiting.extend(header.bytes());
        self.waiting.extend(payload);
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match sys::write(1, self.waiting.as_slices().0) {
                Ok(written) => drop(self.waiting.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// As PID 1 the kernel does it anyway; elsewhere this reaches those that stayed in their groups.
    fn end(&self) {
        for child in self.children.values() {
            child.signal(true, libc::SIGKILL);
        }
    }
}

/// A frame's header, its payload and what follows it; none while its rest has not arrived.
type Frame<'a> = (FrameHeader, &'a [u8], &'a [u8]);

fn frame(bytes: &[u8]) -> io::Result<Option<Frame<'_>>> {
    let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEADER>() else {
        return Ok(None);
    };
    let header = FrameHeader::parse(*head).map_err(malformed)?;
    let split = rest.split_at_checked(header.length as usize);
    Ok(split.map(|(payload, after)| (header, payload, after)))
}

fn malformed(_: wire::Malformed) -> io::Error {
    io::Error::from_raw_os_error(libc::EBADMSG)
}

fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: these calls take numbers only.
    sys::check(unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
    })
    .map(drop)
}

/// Milliseconds of the clock that stands still with the machine.
fn now_ms() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct is valid for the kernel to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// How long the host may still be silent; none without a bound.
fn left_ms(silence_ms: i32, heard: i64) -> Option<i32> {
    let bound = i64::from(u32::try_from(silence_ms).ok()?);
    let left = (heard + bound - now_ms()).clamp(0, bound);
    i32::try_from(left).ok()
}

fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(fd)
}

const _: () = assert!(WINDOW as usize >= wire::DATA_MAX);
const _: () = assert!(OUTPUT == 1 && ERROR == 2);
