//! Starting, signalling and burying processes on request, until whoever asks is gone.

use std::{
    collections::HashMap,
    os::fd::{AsRawFd, OwnedFd},
};

use bulkhead_init::wire::{Event, Request};

use crate::{keeper::Kept, link::Link, spawn, sys};

/// Where this process serves, which says as whom its processes run and how all of them are killed.
pub(crate) enum Place {
    /// As PID 1 behind a sandbox's walls: processes run as the agent, without any right.
    Sandbox,
    /// On the runner's own machine, without walls: processes run as the runner itself.
    Machine(Kept),
}

/// Which pid belongs to which of the parent's tokens. Only processes that the parent started are in it.
pub(crate) type Children = HashMap<i32, u32>;

/// Serves requests and reaps until the parent is gone. Every signal is blocked: they arrive as data.
pub(crate) fn run(parent: &Link, place: &Place) {
    let Ok(signals) = signal_file() else { return };
    let mut children = Children::new();
    loop {
        let mut polled = [parent.raw(), signals.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: the array outlives the call and its length is given.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
        if polled[1].revents != 0 {
            take_signals(&signals, place);
            reap(parent, &mut children);
        }
        if polled[0].revents != 0 && !answer(parent, place, &mut children) {
            return;
        }
    }
}

/// Performs one request; false when the parent is gone.
fn answer(parent: &Link, place: &Place, children: &mut Children) -> bool {
    match parent.receive() {
        Ok(Some((request @ Request::Spawn { .. }, files))) => {
            spawn::spawn(parent, place, &request, files, children);
        }
        Ok(Some((Request::Examine { token }, files))) => {
            spawn::examine(parent, place, token, files, children);
        }
        Ok(Some((
            Request::Signal {
                token,
                group,
                signal,
            },
            _,
        ))) => {
            // Only pids that are not reaped yet are in the table, so none can have been given to somebody else.
            if let Some((&pid, _)) = children.iter().find(|(_, known)| **known == token) {
                let target = if group == 0 { pid } else { -pid };
                // SAFETY: `kill` takes numbers only.
                unsafe { libc::kill(target, signal) };
            }
        }
        Ok(Some((request @ Request::Helper { .. }, files))) => {
            spawn::helper(parent, place, request, files, children);
        }
        Ok(Some((Request::Clear {}, _))) => clear(parent, place, children),
        Ok(None) | Err(_) => return false,
    }
    true
}

fn clear(parent: &Link, place: &Place, children: &mut Children) {
    match place {
        Place::Sandbox => {
            // SAFETY: `kill` takes numbers only; -1 is everything else in this pid namespace.
            unsafe { libc::kill(-1, libc::SIGKILL) };
        }
        Place::Machine(kept) => kept.kill_all(|| reap(parent, children)),
    }
}

fn signal_file() -> std::io::Result<OwnedFd> {
    // The launcher, whose copy this process is, has blocked all signals; the set is made again for the descriptor.
    let set = sys::block_all_signals()?;
    // SAFETY: the set is valid.
    sys::owned(unsafe {
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    })
}

/// Takes what has arrived. A request to end that comes from outside a sandbox goes on to everything inside.
fn take_signals(signals: &OwnedFd, place: &Place) {
    const SIZE: usize = size_of::<libc::signalfd_siginfo>();
    loop {
        // SAFETY: an all-zero record is valid memory for the kernel to fill.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        // SAFETY: the record is as long as said.
        let read = unsafe { libc::read(signals.as_raw_fd(), (&raw mut info).cast(), SIZE) };
        if usize::try_from(read) != Ok(SIZE) {
            return;
        }
        let asks_to_end = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT]
            .map(libc::c_int::cast_unsigned);
        // A sender without a pid here is outside.
        let is_from_outside = matches!(place, Place::Sandbox) && info.ssi_pid == 0;
        if is_from_outside && asks_to_end.contains(&info.ssi_signo) {
            // SAFETY: `kill` takes numbers only; -1 is everything that may be signalled, in this pid namespace.
            unsafe { libc::kill(-1, info.ssi_signo.cast_signed()) };
        }
    }
}

/// Buries every dead child, also the adopted ones, and tells the parent about its own; false when no child is left.
fn reap(parent: &Link, children: &mut Children) -> bool {
    loop {
        let mut status = 0;
        // SAFETY: the status pointer is valid.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid <= 0 {
            return pid == 0;
        }
        if let Some(token) = children.remove(&pid) {
            // A parent that is gone shows as its end of file, in the loop.
            let _ = parent.send(&Event::Exited { token, status }, &[]);
        }
    }
}
