//! PID 1 inside: builds the walls around itself, gives up its rights, then is a real init.
//!
//! ```text
//! released ─▶ root inside ─▶ network ─▶ mounts ─▶ groups ─▶ rights away ─▶ Ready ─▶ serve: Spawn, Signal, reap
//! ```
//!
//! What protects it from the payload: another user id (where there are two), the kernel's rule that a namespace's first
//! process gets no signal from inside that it does not handle, no core dumps or `/proc` access (not dumpable), and
//! `/proc` showing each user only their own processes. It keeps three Linux capabilities, all of them only inside its own
//! user namespace: to become the agent before a program runs (SETUID, SETGID), and to signal the agent's processes (KILL).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bulkhead_init::{
    root,
    wire::{Control, Event, Ids, Plan},
};

use crate::{
    cgroup, landlock,
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
    waits: Link,
    opened: Option<Vec<OwnedFd>>,
    listeners: Option<Vec<OwnedFd>>,
) -> ! {
    match build(plan, waits, opened, listeners) {
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
    waits: Link,
    opened: Option<Vec<OwnedFd>>,
    listeners: Option<Vec<OwnedFd>>,
) -> Outcome<Vec<OwnedFd>> {
    wait_for_launcher(&waits);
    if let Ids::Private { .. } = plan.ids {
        rights::become_root_inside()?;
    }
    // After the last change of user, which clears it.
    rights::guard_init().during(|| "asking for the launcher's death".to_owned())?;
    rights::new_keyring()?;
    network::set_hostname(&plan.hostname)?;
    let mut files = match listeners {
        Some(bound) => bound,
        None => network::loopback_up().and_then(|()| network::listen(&plan.listeners))?,
    };
    root::leave_host_propagation()?;
    let trees = match opened {
        Some(trees) => trees,
        None => tree::open_all(&plan.trees, &[])?,
    };
    mounts::build(&plan.steps, &trees)?;
    drop(trees);
    files.extend(mounts::open_watched(&plan.watched)?);
    // The launcher makes the groups while the mounts are made here. Nothing of the payload's runs before they are entered.
    cgroup::enter(&wait_for_launcher(&waits))?;
    drop(waits);
    // SAFETY: takes flags only.
    check(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) })
        .during(|| "making the cgroup namespace".to_owned())?;
    rights::limit(&plan.rlimits)?;
    rights::keep_only_init_capabilities()?;
    landlock::restrict(&plan.access, landlock::Ports::Open)?;
    rights::filter(&plan.filters)?;
    Ok(files)
}

/// Until the launcher says go; the files come with that. Its end of file is its death, or that it has failed and says so itself.
fn wait_for_launcher(waits: &Link) -> Vec<OwnedFd> {
    match waits.receive() {
        Ok(Some((Control::Go {}, files))) => files,
        _ => exit_now(0),
    }
}
