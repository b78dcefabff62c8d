//! One end of a packet link: a message and the open files beside it.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    mem::size_of,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use bulkhead_init::wire::{self, FDS_MAX, IN_FILE, INLINE, INLINE_MAX, MESSAGE_MAX, Wire};

use crate::sys::{check, owned};

/// Room for [`FDS_MAX`] descriptors beside a packet, aligned as control messages must be.
#[repr(align(8))]
struct Ancillary([u8; 16 + FDS_MAX * size_of::<RawFd>() + 8]);

pub(crate) struct Link(OwnedFd);

impl Link {
    /// Both ends of a new link.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        let mut ends: [RawFd; 2] = [-1; 2];
        // SAFETY: the array has room for the two descriptors, which are new and owned by nobody.
        unsafe {
            check(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()))?;
            Ok((Self::from_raw(ends[0]), Self::from_raw(ends[1])))
        }
    }

    /// # Safety
    /// The descriptor must be open and owned by nobody else.
    pub(crate) unsafe fn from_raw(fd: RawFd) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Closes this process's copy of the descriptor. Only for a child that never touches the link again nor returns.
    pub(crate) fn close_copy(&self) {
        // SAFETY: the descriptor is open, and the caller, a forked copy, neither uses nor drops its `Link` after this.
        unsafe { libc::close(self.raw()) };
    }

    pub(crate) fn send<M: Wire>(&self, message: &M, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let body = wire::encode(message);
        if body.len() <= INLINE_MAX {
            return self.send_packet(&[&[INLINE], &body[..]].concat(), files);
        }
        // SAFETY: the name is a C string.
        let memory = owned(unsafe { libc::memfd_create(c"message".as_ptr(), libc::MFD_CLOEXEC) })?;
        let mut memory = File::from(memory);
        memory.write_all(&body)?;
        memory.rewind()?;
        let all: Vec<_> = std::iter::once(borrow(&memory))
            .chain(files.iter().copied())
            .collect();
        self.send_packet(&[IN_FILE], &all)
    }

    fn send_packet(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        if files.len() > FDS_MAX {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let mut part = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut beside = Ancillary([0; _]);
        // SAFETY: an all-zero header is a valid empty one.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !files.is_empty() {
            let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
            let size = u32::try_from(size_of::<RawFd>() * numbers.len()).unwrap_or(0);
            header.msg_control = beside.0.as_mut_ptr().cast();
            // SAFETY: the buffer has room for `FDS_MAX` descriptors, which bounds `numbers`, and is aligned; the header
            // points to it, so the first control message lies inside it.
            unsafe {
                header.msg_controllen = libc::CMSG_SPACE(size) as usize;
                let first = libc::CMSG_FIRSTHDR(&raw const header);
                (*first).cmsg_level = libc::SOL_SOCKET;
                (*first).cmsg_type = libc::SCM_RIGHTS;
                (*first).cmsg_len = libc::CMSG_LEN(size) as usize;
                libc::CMSG_DATA(first)
                    .copy_from_nonoverlapping(numbers.as_ptr().cast(), size as usize);
            }
        }
        retry(|| {
            // SAFETY: header, part and buffers outlive the call.
            unsafe { libc::sendmsg(self.raw(), &raw const header, libc::MSG_NOSIGNAL) }
        })
        .map(drop)
    }

    /// The next message, or none when the other end is closed.
    pub(crate) fn receive<M: Wire>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let (packet, mut files) = self.receive_packet()?;
        let malformed = |_| io::Error::from_raw_os_error(libc::EBADMSG);
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
            Some(_) => Err(io::Error::from_raw_os_error(libc::EBADMSG)),
        }
    }

    fn receive_packet(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; INLINE_MAX + 1];
        let mut beside = Ancillary([0; _]);
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: an all-zero header is a valid empty one.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = beside.0.as_mut_ptr().cast();
        header.msg_controllen = beside.0.len();
        let length = retry(|| {
            // SAFETY: header, part and buffers outlive the call.
            unsafe { libc::recvmsg(self.raw(), &raw mut header, libc::MSG_CMSG_CLOEXEC) }
        })?;
        let files = received_files(&header);
        bytes.truncate(length);
        if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        Ok((bytes, files))
    }
}

/// Takes ownership of the descriptors that the kernel has put beside a packet.
fn received_files(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut files = Vec::new();
    // SAFETY: `header` was filled by `recvmsg`, so its control messages are well formed and lie in its buffer; each
    // descriptor in an SCM_RIGHTS message is new and owned by nobody yet.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS
            {
                let size = (*message).cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                for index in 0..size / size_of::<RawFd>() {
                    files.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    files
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match check(i64::try_from(call()).unwrap_or(-1)) {
            Ok(count) => return Ok(usize::try_from(count).unwrap_or(0)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn borrow(file: &File) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(file)
}
