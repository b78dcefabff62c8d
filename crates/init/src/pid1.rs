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

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bulkhead_init::wire::{Event, Ids, Plan};

use crate::{
    cgroup::Groups,
    landlock,
    link::Link,
    mounts, network, rights,
    serve::{self, Place},
    sys::{Context, Outcome, check, exit_now},
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
                serve::run(parent, &Place::Sandbox);
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
