//! The launcher: outside, one per sandbox, the last one out.
//!
//! ```text
//! Build ─▶ birthplace ─▶ trees ─▶ PID 1 ─▶ maps ─▶ groups ─▶ [ watch ] ─▶ kill ─▶ wait until empty ─▶ remove ─▶ Ended
//!             a step fails: remove, Failed                        │
//!                                                                 └ End, end of file (the parent died), the time limit, or PID 1's death
//! ```
//!
//! It blocks every signal that can be blocked (so does the nursery that forked it) and is in no process group of the parent's, so a Ctrl-C there does not
//! reach it. When it is killed itself, PID 1's parent-death signal ends the sandbox; only empty groups remain, which the
//! next start of the engine finds.

use std::{
    fs, io, mem,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use bulkhead_init::wire::{Control, Failure, Ids, Plan, Report, Stop, Use};

use crate::{
    cgroup::Groups,
    link::Link,
    network::{self, Namespace},
    pid1, probe,
    sys::{CLONE_INTO_CGROUP, CloneArguments, Context, Outcome, check, clone3, prctl},
    tree,
};

/// The namespaces made at birth; the network's too, where the launcher has not made it. The cgroup namespace follows when PID 1 is in its groups, so that they are its root.
/// A time namespace would change nothing: the sandbox cannot set a clock, with or without one.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// Where the whole machine runs out of memory, sandboxes go before the host's own services. Raising it needs no right.
const HOST_OOM_PREFERENCE: &str = "300";

/// PID 1, as the launcher holds it.
struct Init {
    pid: i64,
    pidfd: OwnedFd,
}

/// Builds, watches and removes one sandbox.
pub(crate) fn run(control: Link, requests: Link) -> io::Result<()> {
    // SAFETY: no preconditions. It fails only for a process that leads a group already, which changes nothing here.
    unsafe { libc::setsid() };
    let network = network::make();
    let (plan, passed) = match control.receive()? {
        Some((Control::Build { plan }, passed)) => (plan, passed),
        Some((Control::Probe {}, _)) => {
            return control.send(
                &Report::Probed {
                    found: probe::all(),
                },
                &[],
            );
        }
        Some(_) | None => return Err(io::Error::from_raw_os_error(libc::EPROTO)),
    };
    let mut groups = Groups::new(&plan.groups, &plan.kill);
    let built =
        network.and_then(|network| build(&plan, &passed, &control, requests, &mut groups, network));
    match built {
        Ok(init) => {
            drop(passed);
            prctl(libc::PR_SET_DUMPABLE, 0)?;
            live(&control, &plan, init, &mut groups)
        }
        Err(failure) => {
            groups.remove();
            control.send(&Report::Failed { failure }, &[])
        }
    }
}

fn build(
    plan: &Plan,
    passed: &[OwnedFd],
    control: &Link,
    requests: Link,
    groups: &mut Groups<'_>,
    network: Namespace,
) -> Outcome<Init> {
    let listeners = match network {
        Namespace::Made => Some(network::listen(&plan.listeners)?),
        Namespace::AtBirth => None,
    };
    groups.make_birthplace()?;
    let own_trees = match plan.ids {
        Ids::Private { .. } => Some(tree::open_all(&plan.trees, passed)?),
        Ids::Own {} => None,
    };
    let (go, waits) = Link::pair().during(|| "making a link to PID 1".to_owned())?;
    let mut pidfd: RawFd = -1;
    let pid = clone_init(groups, network, &mut pidfd)?;
    if pid == 0 {
        drop(go);
        // A copy of the launcher's end in PID 1 would hide the launcher's death from the parent.
        control.close_copy();
        pid1::run(plan, &requests, waits, own_trees, listeners);
    }
    // SAFETY: clone3 has stored a new descriptor there.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let init = Init { pid, pidfd };
    drop((requests, waits, listeners));
    let prepared = map_ids(plan.ids.clone(), pid).and_then(|agent| match &own_trees {
        Some(opened) => tree::map_owners(&plan.trees, opened, pid, agent),
        None => Ok(()),
    });
    let released = prepared.and_then(|()| release(&go, pid, groups));
    if let Err(failure) = released {
        drop(go);
        bury(groups, &init);
        return Err(failure);
    }
    Ok(init)
}

/// Lets PID 1 build, and makes its groups at the same time. It waits for them before it gives up its rights.
fn release(go: &Link, pid: i64, groups: &mut Groups<'_>) -> Outcome<()> {
    let starting = || "starting the sandbox's first process".to_owned();
    go.send(&Control::Go {}, &[]).during(starting)?;
    // Not as root this may fail, and then protects nothing that the user did not risk before.
    let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), HOST_OOM_PREFERENCE);
    groups.make_rest()?;
    let tasks: Vec<_> = groups.tasks.iter().map(AsFd::as_fd).collect();
    go.send(&Control::Go {}, &tasks).during(starting)
}

fn clone_init(groups: &Groups<'_>, network: Namespace, pidfd: &mut RawFd) -> Outcome<i64> {
    let into = groups
        .birth
        .as_ref()
        .map(|dir| u64::try_from(dir.as_raw_fd()).unwrap_or(0));
    let flags = libc::CLONE_PIDFD
        | NAMESPACES
        | match network {
            Namespace::Made => 0,
            Namespace::AtBirth => libc::CLONE_NEWNET,
        };
    let arguments = CloneArguments {
        flags: u64::from(flags.cast_unsigned()) | into.map_or(0, |_| CLONE_INTO_CGROUP),
        pidfd: std::ptr::from_mut(pidfd) as u64,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        cgroup: into.unwrap_or(0),
        ..Default::default()
    };
    clone3(&arguments).during(|| "making the sandbox's namespaces".to_owned())
}

/// Writes the user and group maps; returns the agent's ids outside.
fn map_ids(ids: Ids, pid: i64) -> Outcome<(u32, u32)> {
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/{pid}/{file}"), &text)
            .during(|| format!("writing the {file} “{text}”"))
    };
    match ids {
        Ids::Private { first, stride } => {
            // Two living processes never share a pid, so two living sandboxes never share an id, with no lock at all.
            let root = std::process::id()
                .checked_mul(stride)
                .and_then(|offset| offset.checked_add(first));
            let root = root.ok_or_else(|| Failure {
                step: "choosing the sandbox's user ids".to_owned(),
                errno: libc::ERANGE,
            })?;
            let map = format!("0 {root} 1\n{} {} 1\n", pid1::AGENT, root + 1);
            write("uid_map", map.clone())?;
            write("gid_map", map)?;
            Ok((root + 1, root + 1))
        }
        Ids::Own {} => {
            // SAFETY: these calls have no preconditions and cannot fail.
            let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
            write("setgroups", "deny".to_owned())?;
            write("uid_map", format!("{} {uid} 1\n", pid1::AGENT))?;
            write("gid_map", format!("{} {gid} 1\n", pid1::AGENT))?;
            Ok((uid, gid))
        }
    }
}

fn live(control: &Link, plan: &Plan, init: Init, groups: &mut Groups<'_>) -> io::Result<()> {
    let _ = control.send(
        &Report::Started {
            launcher: std::process::id(),
        },
        &[],
    );
    let asked = watch(control, &init, Duration::from_millis(plan.time_ms));
    let (status, usage) = bury(groups, &init);
    let stop = asked.unwrap_or(Stop::InitDied { status });
    let readings = groups.read();
    let remains = groups.remove();
    // The parent may be gone; then nobody needs the report.
    let _ = control.send(
        &Report::Ended {
            stop,
            usage,
            readings,
            remains,
        },
        &[],
    );
    Ok(())
}

/// Waits for a reason to end; none means that PID 1 ended first.
fn watch(control: &Link, init: &Init, limit: Duration) -> Option<Stop> {
    let mut deadline: Option<Instant> = None;
    loop {
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Some(Stop::TimeLimit {});
        }
        match wait_readable([control.raw(), init.pidfd.as_raw_fd()], left) {
            [true, _] => match control.receive() {
                Ok(Some((Control::StartClock {}, _))) => {
                    deadline = deadline.or_else(|| Instant::now().checked_add(limit));
                }
                Ok(
                    Some((
                        Control::End {}
                        | Control::Build { .. }
                        | Control::Probe {}
                        | Control::Go {}
                        | Control::Fork {},
                        _,
                    ))
                    | None,
                )
                | Err(_) => {
                    return Some(Stop::Asked {});
                }
            },
            [false, true] => return None,
            [false, false] => {}
        }
    }
}

fn wait_readable(fds: [RawFd; 2], timeout: Option<Duration>) -> [bool; 2] {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // Rounded up, so that a deadline is past when the poll ends, and bounded by what `poll` takes.
    let wait = timeout.map_or(-1, |left| {
        i32::try_from(left.as_millis().saturating_add(1)).unwrap_or(i32::MAX)
    });
    // SAFETY: the array outlives the call and its length is given.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, wait) };
    polled.map(|entry| entry.revents != 0)
}

/// Kills everything and waits for PID 1, with whose end the kernel has ended all others of its namespace.
fn bury(groups: &Groups<'_>, init: &Init) -> (i32, Use) {
    let _ = groups.kill_all();
    // The namespace's first process takes all others with it: a second way to the same end, for a kernel or a
    // layout where the first has failed.
    // SAFETY: a pidfd that is our own, no siginfo, no flags.
    let _ = check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            init.pidfd.as_raw_fd(),
            libc::SIGKILL,
            0_usize,
            0_u32,
        )
    });
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid memory for the kernel to fill.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    let pid = i32::try_from(init.pid).unwrap_or(-1);
    // SAFETY: both pointers are valid for the call.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    (
        status,
        Use {
            cpu_us: microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
        },
    )
}

fn microseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
}
