//! The broker's end of a pipe: frames in and out, without ever waiting for one while the other could move.

use std::{collections::VecDeque, io};

use bulkhead_wire::pipe::{
    Decoder, FrameError, FromInvocation, ToInvocation, encode, from_invocation::Frame,
    to_invocation,
};
use rustix::net::RecvFlags;
use tokio::{io::Interest, net::UnixStream};

/// What one reading takes at most.
const READ_BYTES: usize = 32 << 10;

#[derive(Debug, Default)]
pub(super) struct PipeEnd {
    decoder: Decoder<FromInvocation>,
    /// Frames that are to be sent, and how much of the first one is.
    out: VecDeque<Vec<u8>>,
    sent: usize,
    is_closed: bool,
}

/// What came of one turn.
#[derive(Debug)]
pub(super) enum Heard {
    /// A frame; its content may be missing.
    Frame(Option<Frame>),
    /// Bytes moved, and no frame is whole yet.
    Nothing,
    /// The other side is gone.
    Closed,
    Broken(FrameError),
}

impl PipeEnd {
    pub(super) fn send(&mut self, frame: to_invocation::Frame) -> Result<(), FrameError> {
        let message = ToInvocation { frame: Some(frame) };
        self.out.push_back(encode(&message)?);
        Ok(())
    }

    /// Waits until something can be read or written, and does it. May be dropped at any time.
    pub(super) async fn turn(&mut self, socket: &UnixStream) -> Heard {
        if let Some(heard) = self.next_frame() {
            return heard;
        }
        let interest = if self.out.is_empty() {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        match socket.ready(interest).await {
            Ok(ready) => {
                if ready.is_writable() {
                    self.write(socket);
                }
                if ready.is_readable() || ready.is_read_closed() {
                    return self.read(socket);
                }
                Heard::Nothing
            }
            Err(_) => Heard::Closed,
        }
    }

    /// What is there already, without waiting: the kernel itself is asked, because the runtime may not have heard yet that
    /// there is something to read.
    pub(super) fn rest(&mut self, socket: &UnixStream) -> Option<Heard> {
        let mut bytes = [0; READ_BYTES];
        loop {
            if let Some(heard) = self.next_frame() {
                return Some(heard);
            }
            match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(_) => return None,
                Ok((_, count)) => self.decoder.push(&bytes[..count]),
            }
        }
    }

    fn next_frame(&mut self) -> Option<Heard> {
        match self.decoder.take() {
            Ok(Some(message)) => Some(Heard::Frame(message.frame)),
            Ok(None) if self.is_closed => Some(Heard::Closed),
            Ok(None) => None,
            Err(error) => Some(Heard::Broken(error)),
        }
    }

    fn read(&mut self, socket: &UnixStream) -> Heard {
        let mut bytes = [0; READ_BYTES];
        match socket.try_read(&mut bytes) {
            Ok(0) => self.is_closed = true,
            Ok(count) => self.decoder.push(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
            Err(_) => self.is_closed = true,
        }
        self.next_frame().unwrap_or(Heard::Nothing)
    }

    /// Errors show when the other side's end is read.
    fn write(&mut self, socket: &UnixStream) {
        while let Some(first) = self.out.front() {
            match socket.try_write(&first[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.out.clear();
                    self.sent = 0;
                    return;
                }
            }
            if self.sent >= first.len() {
                self.out.pop_front();
                self.sent = 0;
            }
        }
    }
}
