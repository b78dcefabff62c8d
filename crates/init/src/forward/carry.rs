//! One direction of one stream.

use std::{io, os::fd::RawFd};

use crate::sys;

const BUFFER: usize = 64 << 10;

/// Bytes on their way from one file to another.
pub(super) struct Half {
    from: RawFd,
    to: RawFd,
    bytes: Vec<u8>,
    sent: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// Nothing more comes; what is there is still to be sent.
    Draining,
    Over,
}

impl Half {
    pub(super) const fn new(from: RawFd, to: RawFd) -> Self {
        Self {
            from,
            to,
            bytes: Vec::new(),
            sent: 0,
            state: State::Reading,
        }
    }

    const fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    pub(super) fn read_events(&self) -> i16 {
        if self.state == State::Reading && self.is_empty() {
            libc::POLLIN
        } else {
            0
        }
    }

    pub(super) const fn write_events(&self) -> i16 {
        if self.is_empty() { 0 } else { libc::POLLOUT }
    }

    pub(super) fn step(&mut self, from: i16, to: i16) -> io::Result<()> {
        if self.read_events() != 0 && from != 0 {
            self.bytes.resize(BUFFER, 0);
            let read = again(sys::read(self.from, &mut self.bytes))?;
            self.bytes.truncate(read.unwrap_or(0));
            self.sent = 0;
            if read == Some(0) {
                self.state = State::Draining;
            }
        }
        if !self.is_empty() && (to != 0 || from != 0) {
            let written = again(sys::write(self.to, &self.bytes[self.sent..]))?;
            self.sent += written.unwrap_or(0);
        }
        Ok(())
    }

    /// Everything has been sent, and nothing more comes.
    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Draining && self.is_empty()
    }

    pub(super) const fn finish(&mut self) {
        self.state = State::Over;
    }

    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }
}

/// None where it would have had to wait.
pub(super) fn again(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
