//! Accepting streams and carrying all of them over one pair of pipes.

use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
};

use bulkhead_init::wire::{
    BYTES, CARRIED_HEADER, CARRIED_MAX, CLOSED, Carried, ENDED, GRANTED, OPENED, STOP,
    STREAM_WINDOW, STREAMS_MAX,
};

use super::{Endpoint, carry::again, entry, poll, set_nonblocking, tell, write_out};
use crate::sys;

struct Accepted {
    socket: OwnedFd,
    /// From the host, not yet sent on; never more than a window.
    waiting: VecDeque<u8>,
    /// How much may be sent to the host.
    granted: usize,
    /// Whether more may come from the socket, and from the host.
    reads: bool,
    writes: bool,
}

struct Listening {
    socket: Option<OwnedFd>,
    streams: BTreeMap<u32, Accepted>,
    next: u32,
    arrived: Vec<u8>,
}

/// Listens until the host has gone, or wants no more and no stream is left.
pub(crate) fn listen(at: &[u8]) -> io::Result<()> {
    let endpoint = Endpoint::parse(at)?;
    let began = endpoint.listen();
    let socket = match began {
        Ok((socket, port)) => {
            tell(&Ok(port))?;
            socket
        }
        Err(error) => return tell(&Err(error)),
    };
    set_nonblocking(socket.as_raw_fd())?;
    set_nonblocking(0)?;
    let mut listening = Listening {
        socket: Some(socket),
        streams: BTreeMap::new(),
        next: 0,
        arrived: Vec::new(),
    };
    let served = listening.serve(&endpoint);
    listening.stop(&endpoint);
    served
}

impl Listening {
    fn serve(&mut self, endpoint: &Endpoint<'_>) -> io::Result<()> {
        while self.socket.is_some() || !self.streams.is_empty() {
            let (mut polled, numbers) = self.polled();
            poll(&mut polled)?;
            if polled[0].revents != 0 && !self.hear(endpoint)? {
                return Ok(());
            }
            if polled[1].revents != 0 {
                self.accept()?;
            }
            for (entry, number) in polled[2..].iter().zip(numbers) {
                if entry.revents != 0 {
                    self.carry(number)?;
                }
            }
        }
        Ok(())
    }

    fn polled(&self) -> (Vec<libc::pollfd>, Vec<u32>) {
        let has_room = self.streams.len() < STREAMS_MAX;
        let accepts = self.socket.as_ref().filter(|_| has_room);
        let mut polled = vec![
            entry(0, libc::POLLIN),
            entry(
                accepts.map_or(-1, |socket| socket.as_raw_fd()),
                libc::POLLIN,
            ),
        ];
        let mut numbers = Vec::new();
        for (number, stream) in &self.streams {
            let mut events = 0;
            if stream.reads && stream.granted > 0 {
                events |= libc::POLLIN;
            }
            if !stream.waiting.is_empty() {
                events |= libc::POLLOUT;
            }
            if events != 0 {
                polled.push(entry(stream.socket.as_raw_fd(), events));
                numbers.push(*number);
            }
        }
        (polled, numbers)
    }

    fn stop(&mut self, endpoint: &Endpoint<'_>) {
        if self.socket.take().is_some()
            && let Endpoint::Unix(path) = endpoint
        {
            let _ = fs::remove_file(path);
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no address is asked for.
        let accepted = sys::owned(unsafe {
            libc::accept4(
                socket.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                flags,
            )
        });
        // Whoever connected may have gone again.
        let Ok(socket) = accepted else { return Ok(()) };
        let number = self.next;
        self.next = number.wrapping_add(1);
        let stream = Accepted {
            socket,
            waiting: VecDeque::new(),
            granted: STREAM_WINDOW,
            reads: true,
            writes: true,
        };
        self.streams.insert(number, stream);
        say(OPENED, number, &[])
    }

    /// Takes in what the host has sent; false when it has gone.
    fn hear(&mut self, endpoint: &Endpoint<'_>) -> io::Result<bool> {
        let start = self.arrived.len();
        self.arrived.resize(start + CARRIED_MAX, 0);
        let read = again(sys::read(0, &mut self.arrived[start..]))?;
        self.arrived.truncate(start + read.unwrap_or(0));
        if read == Some(0) {
            return Ok(false);
        }
        let arrived = std::mem::take(&mut self.arrived);
        let mut rest = &arrived[..];
        while let Some((header, after)) = rest.split_first_chunk::<CARRIED_HEADER>() {
            let frame = Carried::decode(header);
            let frame = frame.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))?;
            let Some((payload, after)) = after.split_at_checked(frame.length) else {
                break;
            };
            rest = after;
            self.perform(frame, payload, endpoint)?;
        }
        self.arrived = rest.to_vec();
        Ok(true)
    }

    fn perform(
        &mut self,
        frame: Carried,
        payload: &[u8],
        endpoint: &Endpoint<'_>,
    ) -> io::Result<()> {
        if frame.kind == STOP {
            self.stop(endpoint);
            return Ok(());
        }
        // A stream that has just closed may still be spoken to.
        let Some(stream) = self.streams.get_mut(&frame.stream) else {
            return Ok(());
        };
        match frame.kind {
            BYTES if stream.writes => {
                if stream.waiting.len() + payload.len() > STREAM_WINDOW {
                    return Err(io::Error::from_raw_os_error(libc::EBADMSG));
                }
                stream.waiting.extend(payload);
                self.carry(frame.stream)
            }
            ENDED => {
                stream.writes = false;
                self.carry(frame.stream)
            }
            GRANTED => {
                let bytes = payload.try_into().map(u32::from_be_bytes).unwrap_or(0);
                let bytes = usize::try_from(bytes).unwrap_or(0);
                stream.granted = STREAM_WINDOW.min(stream.granted + bytes);
                Ok(())
            }
            _ => {
                self.streams.remove(&frame.stream);
                Ok(())
            }
        }
    }

    /// Moves what can be moved without waiting; a broken stream is closed.
    fn carry(&mut self, number: u32) -> io::Result<()> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        let alive = stream.send(number)? && stream.receive(number)?;
        if !alive || stream.is_over() {
            self.streams.remove(&number);
            say(CLOSED, number, &[])?;
        }
        Ok(())
    }
}

impl Accepted {
    fn is_over(&self) -> bool {
        !self.reads && !self.writes && self.waiting.is_empty()
    }

    /// To the socket; false where it is broken.
    fn send(&mut self, number: u32) -> io::Result<bool> {
        let mut sent = 0;
        while !self.waiting.is_empty() {
            let (bytes, _) = self.waiting.as_slices();
            match again(send(self.socket.as_raw_fd(), bytes)) {
                Ok(Some(count)) => {
                    self.waiting.drain(..count);
                    sent += count;
                }
                Ok(None) => break,
                Err(_) => return Ok(false),
            }
        }
        if sent > 0 {
            let granted = u32::try_from(sent).unwrap_or(0);
            say(GRANTED, number, &granted.to_be_bytes())?;
        }
        if !self.writes && self.waiting.is_empty() {
            // SAFETY: takes numbers only; a socket that is shut already is no harm.
            unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_WR) };
        }
        Ok(true)
    }

    /// From the socket; false where it is broken.
    fn receive(&mut self, number: u32) -> io::Result<bool> {
        let mut buffer = [0; CARRIED_MAX];
        if !self.reads || self.granted == 0 {
            return Ok(true);
        }
        let most = self.granted.min(CARRIED_MAX);
        match again(sys::read(self.socket.as_raw_fd(), &mut buffer[..most])) {
            Ok(None) => {}
            Ok(Some(0)) => {
                self.reads = false;
                say(ENDED, number, &[])?;
            }
            Ok(Some(count)) => {
                self.granted -= count;
                say(BYTES, number, &buffer[..count])?;
            }
            Err(_) => return Ok(false),
        }
        Ok(true)
    }
}

/// Without the signal that a write to nobody would raise.
fn send(socket: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let sent = unsafe {
        libc::send(
            socket,
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn say(kind: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(CARRIED_HEADER + payload.len());
    Carried::encode(kind, stream, payload, &mut frame);
    write_out(&frame)
}
