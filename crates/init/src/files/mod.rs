//! A file server: SFTP version 3 on standard input and output, as whoever runs it, wherever it runs.
//!
//! Beyond the standard it answers what `host`'s file system needs to be exact: with every status the kernel's own number
//! (`errno@bulkhead`), the whole of `stat(2)`, `access(2)`, times in nanoseconds, and changes as they happen. One thread
//! performs one request after the other; nothing that it opens can make it wait for somebody else.
//!
//! Bounds: one packet of [`PACKET_MAX`], [`HANDLES_MAX`] open files, one answer at a time.

mod answer;
mod calls;
mod packet;
mod requests;
mod watch;

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use answer::Answer;
use watch::Watch;

use crate::sys;

/// The longest request: a full chunk with its head fits in.
const PACKET_MAX: usize = 512 << 10;
/// The most that one request reads or writes.
const CHUNK_MAX: usize = 255 << 10;
const HANDLES_MAX: usize = 4096;
const READ_SIZE: usize = 256 << 10;
/// Answers are gathered up to this before they are written.
const GATHER_MAX: usize = 256 << 10;

/// What a client holds open.
enum Handle {
    File(OwnedFd),
    Directory(fs::ReadDir),
    Watch(Watch),
}

#[derive(Default)]
struct Server {
    handles: BTreeMap<u32, Handle>,
    next: u32,
    out: Vec<u8>,
}

/// Serves until nobody asks any more.
pub(crate) fn run() -> io::Result<()> {
    let mut server = Server::default();
    let mut arrived = Vec::new();
    loop {
        server.wait()?;
        if sys::is_readable(STDIN, 0) && !read_some(&mut arrived)? {
            return Ok(());
        }
        let mut from = 0;
        while let Some(packet) = packet::next(&arrived[from..])? {
            from += packet.len() + 4;
            server.perform(packet)?;
            server.flush_if(GATHER_MAX)?;
        }
        arrived.drain(..from);
        server.tell_changes();
        server.flush_if(1)?;
    }
}

// SAFETY: standard input is open for as long as this process lives, which is what `run` relies on anyway.
const STDIN: std::os::fd::BorrowedFd<'static> = unsafe { std::os::fd::BorrowedFd::borrow_raw(0) };

fn read_some(arrived: &mut Vec<u8>) -> io::Result<bool> {
    let start = arrived.len();
    arrived.resize(start + READ_SIZE, 0);
    let read = loop {
        match sys::read(0, &mut arrived[start..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sys::is_readable(STDIN, -1);
            }
            other => break other?,
        }
    };
    arrived.truncate(start + read);
    Ok(read > 0)
}

impl Server {
    /// Until there is a request, or a change that somebody waits for.
    fn wait(&self) -> io::Result<()> {
        let watched = self.handles.values().filter_map(|handle| match handle {
            Handle::Watch(watch) if watch.is_asked() => Some(watch.fd()),
            _ => None,
        });
        let mut polled: Vec<libc::pollfd> = std::iter::once(0)
            .chain(watched)
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let count = libc::nfds_t::try_from(polled.len()).unwrap_or(0);
        // SAFETY: the array outlives the call and its length is given.
        match sys::check(unsafe { libc::poll(polled.as_mut_ptr(), count, -1) }) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, id: u32, answer: &Answer) {
        answer.put(id, &mut self.out);
    }

    fn flush_if(&mut self, least: usize) -> io::Result<()> {
        if self.out.len() < least {
            return Ok(());
        }
        let mut rest = &self.out[..];
        while !rest.is_empty() {
            match sys::write(1, rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for_room(),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        Ok(())
    }

    fn keep(&mut self, handle: Handle) -> io::Result<u32> {
        if self.handles.len() >= HANDLES_MAX {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        while self.handles.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.handles.insert(number, handle);
        Ok(number)
    }

    fn file(&self, handle: u32) -> io::Result<i32> {
        match self.handles.get(&handle) {
            Some(Handle::File(file)) => Ok(file.as_raw_fd()),
            _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// Answers those who wait for changes that are there by now.
    fn tell_changes(&mut self) {
        let mut told = Vec::new();
        for handle in self.handles.values_mut() {
            if let Handle::Watch(watch) = handle {
                told.extend(watch.take());
            }
        }
        for (id, answer) in told {
            self.answer(id, &answer);
        }
    }
}

/// Whoever started this may have given it streams that do not wait.
fn wait_for_room() {
    let mut polled = libc::pollfd {
        fd: 1,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: the one entry outlives the call.
    unsafe { libc::poll(&raw mut polled, 1, -1) };
}
