//! A terminal for a process: both ends are made here, the outer one goes to the parent.

use std::{
    io, mem,
    os::fd::{AsRawFd, OwnedFd},
};

use crate::{
    pid1::AGENT,
    rights,
    serve::Place,
    sys::{check, open, owned},
};

/// The outer end and the inner end.
pub(crate) fn open_pair(place: &Place, rows: u16, columns: u16) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let outer = match place {
        Place::Sandbox => {
            let outer = as_agent(|| open("/dev/pts/ptmx", flags))?;
            rights::guard_init()?;
            outer
        }
        Place::Machine(_) => open("/dev/ptmx", flags)?,
    };
    let unlock: i32 = 0;
    // SAFETY: all-zero is a valid window size.
    let mut size: libc::winsize = unsafe { mem::zeroed() };
    size.ws_row = rows;
    size.ws_col = columns;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: each request gets what it takes: a pointer to an int, a window size, open flags.
    let inner = unsafe {
        check(libc::ioctl(
            outer.as_raw_fd(),
            libc::TIOCSPTLCK,
            &raw const unlock,
        ))?;
        check(libc::ioctl(
            outer.as_raw_fd(),
            libc::TIOCSWINSZ,
            &raw const size,
        ))?;
        owned(libc::ioctl(outer.as_raw_fd(), libc::TIOCGPTPEER, flags))?
    };
    Ok((outer, inner))
}

/// The terminal's file belongs to whoever opens it: the agent, not PID 1.
fn as_agent<T>(open: impl FnOnce() -> T) -> T {
    // SAFETY: these calls take numbers only.
    let before = unsafe { (libc::setfsgid(AGENT), libc::setfsuid(AGENT)) };
    let opened = open();
    // SAFETY: as above.
    unsafe {
        libc::setfsuid(before.1.cast_unsigned());
        libc::setfsgid(before.0.cast_unsigned());
    }
    opened
}
