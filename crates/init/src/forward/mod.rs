//! Streams to and from ports and sockets of the place where this runs, over standard input and output.
//!
//! `connect` says how it went ([`STATUS`] bytes) and then carries one stream, `pipe` only carries it; `listen` carries all that it accepts, in the frames
//! of [`bulkhead_init::wire::Carried`]. One thread, one `poll`; nothing that one stream does holds another one up.

mod carry;
mod listen;

use std::{
    ffi::OsStr,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::{
            ffi::OsStrExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
};

use bulkhead_init::wire::STATUS;
use carry::Half;
pub(crate) use listen::listen;

use crate::sys;

/// What is connected to or listened at: `tcp:ADDRESS` or `unix:PATH`.
enum Endpoint<'a> {
    Tcp(SocketAddr),
    Unix(&'a Path),
}

impl<'a> Endpoint<'a> {
    fn parse(text: &'a [u8]) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        if let Some(path) = text.strip_prefix(b"unix:") {
            return Ok(Self::Unix(Path::new(OsStr::from_bytes(path))));
        }
        let address = text.strip_prefix(b"tcp:").ok_or_else(invalid)?;
        let address = std::str::from_utf8(address).map_err(|_| invalid())?;
        address.parse().map(Self::Tcp).map_err(|_| invalid())
    }

    fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(address) => TcpStream::connect(address).map(Into::into),
            Self::Unix(path) => UnixStream::connect(path).map(Into::into),
        }
    }

    /// The listening socket, and its port.
    fn listen(&self) -> io::Result<(OwnedFd, u16)> {
        match self {
            Self::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let port = listener.local_addr()?.port();
                Ok((listener.into(), port))
            }
            Self::Unix(path) => Ok((UnixListener::bind(path)?.into(), 0)),
        }
    }
}

/// Says how it began.
fn tell(began: &io::Result<u16>) -> io::Result<()> {
    let (errno, port) = match began {
        Ok(port) => (0, *port),
        Err(error) => (error.raw_os_error().unwrap_or(libc::EIO), 0),
    };
    let mut status = [0; STATUS];
    status[..4].copy_from_slice(&errno.to_be_bytes());
    status[4..].copy_from_slice(&port.to_be_bytes());
    write_out(&status)
}

/// To standard output, however long its reader takes.
fn write_out(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match sys::write(1, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [entry(1, libc::POLLOUT)])?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const fn entry(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

fn poll(entries: &mut [libc::pollfd]) -> io::Result<()> {
    let count = libc::nfds_t::try_from(entries.len()).unwrap_or(0);
    // SAFETY: the array outlives the call and its length is given.
    match sys::check(unsafe { libc::poll(entries.as_mut_ptr(), count, -1) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes numbers only.
    let flags = sys::check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    let flags = i32::try_from(flags).unwrap_or(0) | libc::O_NONBLOCK;
    // SAFETY: as above.
    sys::check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }).map(drop)
}

/// Carries one stream until both of its directions have ended, or nobody is there any more to hear it.
pub(crate) fn connect(to: &[u8]) -> io::Result<()> {
    let connected = Endpoint::parse(to).and_then(|to| to.connect());
    let socket = match connected {
        Ok(socket) => {
            tell(&Ok(0))?;
            socket
        }
        Err(error) => return tell(&Err(error)),
    };
    carry_until_the_end(&socket)
}

/// As [`connect`], for those who expect nothing but the stream.
pub(crate) fn pipe(to: &[u8]) -> io::Result<()> {
    let socket = Endpoint::parse(to)?.connect()?;
    carry_until_the_end(&socket)
}

fn carry_until_the_end(socket: &OwnedFd) -> io::Result<()> {
    for fd in [0, 1, socket.as_raw_fd()] {
        set_nonblocking(fd)?;
    }
    let socket = socket.as_raw_fd();
    let (mut inwards, mut outwards) = (Half::new(0, socket), Half::new(socket, 1));
    while !(inwards.is_over() && outwards.is_over()) {
        let mut polled = [
            entry(0, inwards.read_events()),
            entry(socket, outwards.read_events() | inwards.write_events()),
            // An entry that asks for nothing still hears that the reader has gone.
            entry(1, outwards.write_events()),
        ];
        if inwards.read_events() == 0 {
            polled[0].fd = -1;
        }
        poll(&mut polled)?;
        inwards.step(polled[0].revents, polled[1].revents)?;
        outwards.step(polled[1].revents, polled[2].revents)?;
        if inwards.has_ended() {
            // SAFETY: takes numbers only; a socket that is shut already is no harm.
            unsafe { libc::shutdown(socket, libc::SHUT_WR) };
            inwards.finish();
        }
        if outwards.has_ended() {
            // SAFETY: nothing owns standard output here; this is its one close.
            unsafe { libc::close(1) };
            outwards.finish();
        } else if polled[2].revents & libc::POLLERR != 0 {
            return Ok(());
        }
    }
    Ok(())
}
