//! The parent's end of a packet link to the launcher or PID 1; see `bulkhead_init::wire`.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use bulkhead_init::wire::{self, FDS_MAX, IN_FILE, INLINE, INLINE_MAX, MESSAGE_MAX, Wire};
use rustix::{
    fs::MemfdFlags,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
        sendmsg, socketpair,
    },
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::sys;

#[derive(Debug)]
pub(crate) struct Link(AsyncFd<OwnedFd>);

impl Link {
    /// Our end, registered with the runtime, and the other one, for a process to inherit.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        Ok((Self(sys::watch(ours)?), theirs))
    }

    pub(crate) async fn send<M: Wire>(
        &self,
        message: &M,
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let body = wire::encode(message);
        if body.len() > MESSAGE_MAX || files.len() >= FDS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "larger than a message to the sandbox may be",
            ));
        }
        if body.len() <= INLINE_MAX {
            return self
                .send_packet(&[&[INLINE], &body[..]].concat(), files)
                .await;
        }
        let memory = in_memory(&body)?;
        let all: Vec<_> = std::iter::once(memory.as_fd())
            .chain(files.iter().copied())
            .collect();
        self.send_packet(&[IN_FILE], &all).await
    }

    /// The other end reads what was sent, and then the end of file; it can still answer.
    pub(crate) fn close_sending(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(
            &self.0,
            rustix::net::Shutdown::Write,
        )?)
    }

    async fn send_packet(&self, packet: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let send = |socket: &OwnedFd| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            Ok(sendmsg(
                socket,
                &[IoSlice::new(packet)],
                &mut beside,
                SendFlags::NOSIGNAL,
            )?)
        };
        self.0.async_io(Interest::WRITABLE, send).await.map(drop)
    }

    /// The next message, or none when the other end is closed. Safe to cancel: a message is taken whole or not at all.
    pub(crate) async fn receive<M: Wire>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let (packet, mut files) = self.0.async_io(Interest::READABLE, receive_packet).await?;
        let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        match packet.split_first() {
            None => Ok(None),
            Some((&INLINE, body)) => Ok(Some((wire::decode(body).map_err(malformed)?, files))),
            Some((&IN_FILE, [])) if !files.is_empty() => {
                let mut body = Vec::new();
                File::from(files.remove(0))
                    .take(MESSAGE_MAX as u64)
                    .read_to_end(&mut body)?;
                Ok(Some((wire::decode(&body).map_err(malformed)?, files)))
            }
            Some(_) => Err(malformed(wire::Malformed)),
        }
    }
}

fn receive_packet(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; INLINE_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    );
    let received = match received {
        // What closes with unread data in it says so by a reset; for us it is closed either way.
        Err(rustix::io::Errno::CONNRESET) => return Ok((Vec::new(), Vec::new())),
        other => other?,
    };
    let mut files = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message from the sandbox was cut",
        ));
    }
    bytes.truncate(received.bytes);
    Ok((bytes, files))
}

fn in_memory(body: &[u8]) -> io::Result<OwnedFd> {
    let mut memory = File::from(rustix::fs::memfd_create("message", MemfdFlags::CLOEXEC)?);
    memory.write_all(body)?;
    memory.rewind()?;
    Ok(memory.into())
}
