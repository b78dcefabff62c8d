//! The nursery: executed once per engine, it forks a launcher for each sandbox.
//!
//! Executing a program costs 0.7 ms where this was measured (most of it the C library finding out about the processor), a fork
//! of this small process 0.13 ms, and a fork of the parent, with its many threads, is not possible at all. It does nothing
//! else, ends with the parent, and a sandbox does not need it any more once its launcher runs.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use bulkhead_init::wire::Control;

use crate::{
    launcher,
    link::Link,
    sys::{block_all_signals, check, exit_now},
};

/// Forks on request until the parent is gone.
pub(crate) fn run(parent: &Link) -> io::Result<()> {
    // SAFETY: no preconditions. It fails only for a process that leads a group already, which changes nothing here.
    unsafe { libc::setsid() };
    block_all_signals()?;
    std::env::set_current_dir("/")?;
    name_process()?;
    // The kernel buries the launchers: the parent knows by their links when they are gone.
    reap_children_by(libc::SIG_IGN);
    while let Some((message, files)) = parent.receive::<Control>()? {
        let (Control::Fork {}, Ok(ends)) = (message, <[OwnedFd; 2]>::try_from(files)) else {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        };
        // SAFETY: this process has one thread, so the child, a copy, may run any code.
        if unsafe { libc::fork() } == 0 {
            exit_now(i32::from(become_launcher(&ends).is_err()));
        }
        // Where the fork failed, both links are closed now, which is how the parent hears of it.
    }
    Ok(())
}

/// The links take the places of the nursery's own descriptors, so nothing of the nursery's is left in a launcher.
fn become_launcher(ends: &[OwnedFd; 2]) -> io::Result<()> {
    reap_children_by(libc::SIG_DFL);
    for (place, end) in (0..).zip(ends) {
        // SAFETY: takes numbers only; what was open in that place belongs to a `Link` that this process never uses again.
        check(unsafe { libc::dup2(end.as_raw_fd(), place) })?;
        // SAFETY: the descriptor is open; nobody in this process uses or drops its owner after this.
        check(unsafe { libc::close(end.as_raw_fd()) })?;
    }
    // SAFETY: both were put there above.
    let (control, requests) = unsafe { (Link::from_raw(0), Link::from_raw(1)) };
    launcher::run(control, requests)
}

fn reap_children_by(action: libc::sighandler_t) {
    // SAFETY: both actions used here are always valid.
    unsafe { libc::signal(libc::SIGCHLD, action) };
}

/// Executed from a descriptor, the process would be called by that number.
pub(crate) fn name_process() -> io::Result<()> {
    // SAFETY: the name is a C string shorter than the kernel's 16 bytes.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, c"bulkhead-init".as_ptr()) }).map(drop)
}
