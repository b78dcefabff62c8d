//! PID 1 inside: builds the walls around itself, gives up its rights, then is a real init.
//!
//! ```text
//! released ─▶ groups ─▶ root inside ─▶ network ─▶ mounts ─▶ rights away ─▶ Ready ─▶ serve: Spawn, Signal, reap
//! ```
//!
//! What protects it from the payload: another user id (where there are two), the kernel's rule that a namespace's first
//! process gets no signal from inside that it does not handle, no core dumps or `/proc` access (not dumpable), and
//! `/proc` showing each user only their own processes. It keeps three Linux capabilities, all of them only inside its own
//! user namespace: to become the agent before a program runs (SETUID, SETGID), and to signal the agent's processes (KILL).

use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use bulkhead_init::wire::{Event, Ids, Plan, Request};

use crate::{
    cgroup::Groups,
    landlock,
    link::Link,
    mounts, network, rights, spawn,
    sys::{self, Context, Outcome, check, exit_now},
    tree,
};

/// The agent's user and group id inside.
pub(crate) const AGENT: u32 = 1000;

/// The life of PID 1. It never returns: its end is the sandbox's.
pub(crate) fn run(
    plan: &Plan,
    parent: &Link,
    waits: &OwnedFd,
    groups: &Groups<'_>,
    opened: Option<Vec<OwnedFd>>,
) -> ! {
    match build(plan, waits, groups, opened) {
        Ok(files) => {
            let borrowed: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
            let told = parent.send(&Event::Ready {}, &borrowed);
            drop(files);
            if told.is_ok() {
                serve(parent);
            }
        }
        Err(failure) => {
            let _ = parent.send(&Event::Failed { failure }, &[]);
        }
    }
    exit_now(0);
}

/// Everything between birth and readiness; returns the files that the parent is to have.
fn build(
    plan: &Plan,
    waits: &OwnedFd,
    groups: &Groups<'_>,
    opened: Option<Vec<OwnedFd>>,
) -> Outcome<Vec<OwnedFd>> {
    wait_for_release(waits);
    groups.enter()?;
    // SAFETY: takes flags only.
    check(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) })
        .during(|| "making the cgroup namespace".to_owned())?;
    if let Ids::Private { .. } = plan.ids {
        rights::become_root_inside()?;
    }
    // After the last change of user, which clears it.
    rights::guard_init().during(|| "asking for the launcher's death".to_owned())?;
    rights::new_keyring()?;
    network::set_hostname(&plan.hostname)?;
    let mut files = network::listen(&plan.listeners)?;
    mounts::leave_host_propagation()?;
    let trees = match opened {
        Some(trees) => trees,
        None => tree::open_all(&plan.trees, &[])?,
    };
    mounts::build(&plan.steps, &trees)?;
    drop(trees);
    files.extend(mounts::open_watched(&plan.watched)?);
    rights::limit(&plan.rlimits)?;
    rights::keep_only_init_capabilities()?;
    landlock::restrict(&plan.access)?;
    rights::filter(&plan.filters)?;
    Ok(files)
}

/// Until the launcher has written the maps. End of file is the launcher's death.
fn wait_for_release(waits: &OwnedFd) {
    let mut byte = [0_u8; 1];
    // SAFETY: the buffer has room for the one byte.
    if unsafe { libc::read(waits.as_raw_fd(), byte.as_mut_ptr().cast(), 1) } != 1 {
        exit_now(0);
    }
}

/// Which pid belongs to which of the parent's tokens. Only processes that the parent started are in it.
pub(crate) type Children = HashMap<i32, u32>;

/// Serves requests and reaps until the parent is gone. Every signal is blocked: they arrive as data.
fn serve(parent: &Link) {
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
            take_signals(&signals);
            reap(parent, &mut children);
        }
        if polled[0].revents != 0 && !answer(parent, &mut children) {
            return;
        }
    }
}

/// Performs one request; false when the parent is gone.
fn answer(parent: &Link, children: &mut Children) -> bool {
    match parent.receive() {
        Ok(Some((request @ Request::Spawn { .. }, files))) => {
            spawn::spawn(parent, &request, files, children);
            true
        }
        Ok(Some((Request::Examine { token }, files))) => {
            spawn::examine(parent, token, files, children);
            true
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
            true
        }
        Ok(Some((Request::Clear {}, _))) => {
            // SAFETY: `kill` takes numbers only; -1 is everything else in this pid namespace.
            unsafe { libc::kill(-1, libc::SIGKILL) };
            true
        }
        Ok(None) | Err(_) => false,
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

/// Takes what has arrived. A request to end that comes from outside goes on to everything inside.
fn take_signals(signals: &OwnedFd) {
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
        if info.ssi_pid == 0 && asks_to_end.contains(&info.ssi_signo) {
            // SAFETY: `kill` takes numbers only; -1 is everything that may be signalled, in this pid namespace.
            unsafe { libc::kill(-1, info.ssi_signo.cast_signed()) };
        }
    }
}

/// Buries every dead child, also the adopted ones, and tells the parent about its own.
fn reap(parent: &Link, children: &mut Children) {
    loop {
        let mut status = 0;
        // SAFETY: the status pointer is valid.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid <= 0 {
            return;
        }
        if let Some(token) = children.remove(&pid) {
            // A parent that is gone shows as its end of file, in the loop.
            let _ = parent.send(&Event::Exited { token, status }, &[]);
        }
    }
}
