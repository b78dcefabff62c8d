//! Sockets of the place where the holder is: connecting to them, and listening.

use std::{
    ffi::OsStr,
    fs, io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::{ffi::OsStrExt as _, net::UnixListener},
    },
    path::PathBuf,
};

use bulkhead_init::wire::Place;

use super::set_nonblocking;
use crate::sys;

/// A socket that somebody may connect to. Its path goes with it.
pub(super) struct Listening {
    fd: OwnedFd,
    path: Option<PathBuf>,
}

impl Listening {
    /// And where it listens, because a port of 0 becomes another one.
    pub(super) fn open(at: &Place) -> io::Result<(Self, Place)> {
        let (fd, path, bound) = match at {
            Place::Tcp { address } => {
                let socket = TcpListener::bind(parsed(address)?)?;
                let address = socket.local_addr()?.to_string().into_bytes();
                (OwnedFd::from(socket), None, Place::Tcp { address })
            }
            Place::Unix { path } => {
                let bound = PathBuf::from(OsStr::from_bytes(path));
                let socket = UnixListener::bind(&bound)?;
                (OwnedFd::from(socket), Some(bound), at.clone())
            }
        };
        set_nonblocking(fd.as_raw_fd())?;
        Ok((Self { fd, path }, bound))
    }

    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The next connection, where one waits.
    pub(super) fn accept(&self) -> io::Result<OwnedFd> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the addresses of peers are not asked for.
        sys::owned(unsafe {
            libc::accept4(
                self.raw(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                flags,
            )
        })
    }
}

/// Nobody can listen at the path again while the socket lies there.
impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Begins to connect; the answer comes when the socket can be written.
pub(super) fn begin_connect(to: &Place) -> io::Result<OwnedFd> {
    let address = Address::of(to)?;
    let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    let socket = sys::owned(unsafe { libc::socket(address.family(), flags, 0) })?;
    match address.connect(&socket) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
        Ok(()) => Ok(socket),
    }
}

/// What became of a connecting socket that can be written.
pub(super) fn outcome(socket: &OwnedFd) -> io::Result<()> {
    let (mut error, mut length) = (
        0_i32,
        libc::socklen_t::try_from(size_of::<i32>()).unwrap_or(4),
    );
    // SAFETY: the value and its length outlive the call and belong together.
    sys::check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &raw mut length,
        )
    })?;
    match error {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// Ends one direction.
pub(super) fn shut(socket: &OwnedFd, how: i32) {
    // SAFETY: numbers only. One that is shut already is refused without harm.
    unsafe { libc::shutdown(socket.as_raw_fd(), how) };
}

enum Address {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
    Unix(libc::sockaddr_un),
}

impl Address {
    fn of(place: &Place) -> io::Result<Self> {
        match place {
            Place::Tcp { address } => Ok(match parsed(address)? {
                SocketAddr::V4(address) => Self::V4(libc::sockaddr_in {
                    sin_family: family_number(libc::AF_INET),
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(address.ip().octets()),
                    },
                    sin_zero: [0; 8],
                }),
                SocketAddr::V6(address) => Self::V6(libc::sockaddr_in6 {
                    sin6_family: family_number(libc::AF_INET6),
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: address.ip().octets(),
                    },
                    sin6_scope_id: address.scope_id(),
                }),
            }),
            Place::Unix { path } => Self::of_path(path),
        }
    }

    fn of_path(path: &[u8]) -> io::Result<Self> {
        // SAFETY: all-zero is a valid address to fill in.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = family_number(libc::AF_UNIX);
        // The last byte stays zero: it ends the path.
        if path.is_empty() || path.contains(&0) || path.len() >= address.sun_path.len() {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = from.cast_signed();
        }
        Ok(Self::Unix(address))
    }

    const fn family(&self) -> i32 {
        match self {
            Self::V4(_) => libc::AF_INET,
            Self::V6(_) => libc::AF_INET6,
            Self::Unix(_) => libc::AF_UNIX,
        }
    }

    fn connect(&self, socket: &OwnedFd) -> io::Result<()> {
        let (pointer, length): (*const libc::sockaddr, usize) = match self {
            Self::V4(address) => (std::ptr::from_ref(address).cast(), size_of_val(address)),
            Self::V6(address) => (std::ptr::from_ref(address).cast(), size_of_val(address)),
            Self::Unix(address) => (std::ptr::from_ref(address).cast(), size_of_val(address)),
        };
        let length = libc::socklen_t::try_from(length).unwrap_or(0);
        // SAFETY: pointer and length are those of one address, which outlives the call.
        sys::check(unsafe { libc::connect(socket.as_raw_fd(), pointer, length) }).map(drop)
    }
}

fn family_number(family: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or(0)
}

fn parsed(address: &[u8]) -> io::Result<SocketAddr> {
    let text = std::str::from_utf8(address).ok();
    let parsed = text.and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}
