//! The system calls for which there is no safe wrapper.
#![expect(
    unsafe_code,
    reason = "forking, and taking descriptors over, are promises to the compiler that only this program as a whole keeps"
)]

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use crate::rehearsal::Access;
use bulkhead_init::sys::{CloneArguments, check, clone3, owned};

/// The process that a fork returns in.
pub(crate) enum Forked {
    Child,
    Parent { pid: u32, pidfd: OwnedFd },
}

/// Copies this process, which has one thread.
pub(crate) fn fork() -> io::Result<Forked> {
    let mut pidfd: i32 = -1;
    let arguments = CloneArguments {
        flags: libc::CLONE_PIDFD.cast_unsigned().into(),
        pidfd: (&raw mut pidfd).addr() as u64,
        exit_signal: libc::SIGCHLD.cast_unsigned().into(),
        ..Default::default()
    };
    let pid = clone3(&arguments)?;
    if pid == 0 {
        return Ok(Forked::Child);
    }
    Ok(Forked::Parent {
        pid: u32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?,
        pidfd: owned(pidfd)?,
    })
}

/// Leaves the namespaces named by `flags`.
pub(crate) fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: takes flags only; this process has one thread and shares no memory.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// The socket that this process was started with as its standard input.
pub(crate) fn take_input() -> OwnedFd {
    // SAFETY: it is open in every process that was started (the standard library sees to it), and nothing here reads the
    // standard input, so nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(0) }
}

/// Puts `file` in the place of one of the three standard files too, and takes that.
pub(crate) fn put_in_place(file: BorrowedFd<'_>, place: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only; whoever owned what lay in that place is, in a forked child, never used nor dropped.
    owned(unsafe { libc::dup2(file.as_raw_fd(), place) })
}

/// As if this process had read each page, or had written to it what is there.
pub(crate) fn populate(pages: &std::ops::Range<usize>, access: Access) -> io::Result<()> {
    let advice = match access {
        Access::Read => libc::MADV_POPULATE_READ,
        Access::Write => libc::MADV_POPULATE_WRITE,
    };
    // SAFETY: this advice changes no byte of memory, whatever lies at the address; where nothing does, it fails.
    check(unsafe {
        libc::madvise(
            std::ptr::without_provenance_mut(pages.start),
            pages.len(),
            advice,
        )
    })
    .map(drop)
}

/// Closes every descriptor from `first` on. What owned them must never be used nor dropped.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: takes numbers only; the callers' processes forget the owners.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) }).map(drop)
}

/// What every signal does is what the kernel does of itself, but writing into a closed pipe, which is an error. A handler
/// left from the language's runtime could need calls that a locked-down process does not have, and would be entered for ever.
pub(crate) fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: both actions are always valid; the kernel refuses the two signals that cannot be set.
        unsafe {
            libc::signal(
                signal,
                if signal == libc::SIGPIPE {
                    libc::SIG_IGN
                } else {
                    libc::SIG_DFL
                },
            )
        };
    }
}

/// Ended children make the descriptor readable; their signal interrupts nothing.
pub(crate) fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: an all-zero signal set is valid memory for `sigemptyset` to fill; the set is valid for all calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        check(libc::sigemptyset(&raw mut set))?;
        check(libc::sigaddset(&raw mut set, libc::SIGCHLD))?;
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            std::ptr::null_mut(),
        ))?;
        owned(libc::signalfd(
            -1,
            &raw const set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))
    }
}
