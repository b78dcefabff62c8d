//! The sandbox's network: loopback, and the sockets that are served from outside (D5).

use std::{
    io, mem,
    os::fd::{AsRawFd, OwnedFd},
};

use bulkhead_init::wire::Listener;

use crate::sys::{Context, Outcome, check, owned};

const BACKLOG: i32 = 1024;
const TCP: u8 = 6;

pub(crate) fn set_hostname(name: &str) -> Outcome<()> {
    // SAFETY: the bytes are valid for the given length.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })
        .map(drop)
        .during(|| format!("naming the sandbox {name}"))
}

/// Who makes the sandbox's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// The launcher has, before it knew its plan: nothing else takes as long as making one, and this way a sandbox does not wait for
    /// it. It belongs to the launcher's user namespace, so inside nobody has a right over it, not even PID 1.
    Made,
    /// PID 1 is born with its own: all that an unprivileged launcher can do.
    AtBirth,
}

/// Moves the launcher into a new, empty network with its loopback up, where it may.
pub(crate) fn make() -> Outcome<Namespace> {
    // SAFETY: takes flags only.
    match check(unsafe { libc::unshare(libc::CLONE_NEWNET) }) {
        Ok(_) => loopback_up().map(|()| Namespace::Made),
        Err(_) => Ok(Namespace::AtBirth),
    }
}

/// Binds each listener, in order. Ports below 1024 are free here: the namespace is our own.
pub(crate) fn listen(listeners: &[Listener]) -> Outcome<Vec<OwnedFd>> {
    let bind = |listener: &Listener| {
        bind(listener).during(|| format!("listening on port {} inside the sandbox", listener.port))
    };
    listeners.iter().map(bind).collect()
}

pub(crate) fn loopback_up() -> Outcome<()> {
    up().during(|| "bringing the sandbox's loopback up".to_owned())
}

fn up() -> io::Result<()> {
    // SAFETY: takes numbers only.
    let socket =
        owned(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: an all-zero request is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP).unwrap_or(1);
    // SAFETY: the request is valid for the call and names an interface with a terminated string.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })
        .map(drop)
}

fn bind(listener: &Listener) -> io::Result<OwnedFd> {
    let (family, address, length) = socket_address(listener)?;
    let is_tcp = listener.protocol == TCP;
    let kind = if is_tcp {
        libc::SOCK_STREAM
    } else {
        libc::SOCK_DGRAM
    };
    // SAFETY: takes numbers only.
    let socket =
        owned(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) })?;
    // SAFETY: `address` holds an address of the family and length given with it.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    if is_tcp {
        // SAFETY: takes numbers only.
        check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    }
    Ok(socket)
}

fn socket_address(listener: &Listener) -> io::Result<(i32, libc::sockaddr_storage, u32)> {
    // SAFETY: all-zero socket addresses are valid.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let port = listener.port.to_be();
    if let Ok(bytes) = <[u8; 4]>::try_from(&listener.address[..]) {
        let v4 = (&raw mut storage).cast::<libc::sockaddr_in>();
        // SAFETY: the storage is large enough and aligned for every address family.
        unsafe {
            (*v4).sin_family = family(libc::AF_INET);
            (*v4).sin_port = port;
            (*v4).sin_addr.s_addr = u32::from_ne_bytes(bytes);
        }
        return Ok((libc::AF_INET, storage, length::<libc::sockaddr_in>()));
    }
    let bytes = <[u8; 16]>::try_from(&listener.address[..]);
    let bytes = bytes.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let v6 = (&raw mut storage).cast::<libc::sockaddr_in6>();
    // SAFETY: as above.
    unsafe {
        (*v6).sin6_family = family(libc::AF_INET6);
        (*v6).sin6_port = port;
        (*v6).sin6_addr.s6_addr = bytes;
    }
    Ok((libc::AF_INET6, storage, length::<libc::sockaddr_in6>()))
}

fn family(number: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).unwrap_or(0)
}

fn length<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0)
}
