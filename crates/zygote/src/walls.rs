//! The walls that the zygote builds around itself, once, and that every fork inherits.
//!
//! ```text
//! outer: namespaces ─fork▶ zygote, PID 1: mounts apart ─▶ guest made (V8, ICU, warm-up) ─▶ keyring ─▶ empty root
//!          ─▶ limits ─▶ user, Linux capabilities ─▶ Landlock ─▶ descriptors closed
//! ```
//!
//! The guest is made inside the namespaces, which have no network, and before the root is empty, because it reads its files.

use std::{fs, io};

use bulkhead_init::{
    landlock, rights, root,
    sys::{Context, Outcome, mount, prctl},
    wire::{Failure, Rlimit},
};
use bulkhead_sandbox::Refusal;

use crate::sys;

/// Nobody's: files, if there were any, could be read only where everybody may.
const USER: u32 = 65_534;
/// Where the whole machine runs out of memory, plugins go before the host's own services.
const OOM_PREFERENCE: &str = "500";
const NAMESPACES: i32 = libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID;
/// The zygote's own: its standard files, two ends of a pipe, a pidfd and the entrances of one request.
const OPEN_FILES: u64 = 64;
/// What no process needs that only computes.
const NOTHING: [u32; 5] = [
    libc::RLIMIT_CORE,
    libc::RLIMIT_MEMLOCK,
    libc::RLIMIT_MSGQUEUE,
    libc::RLIMIT_NICE,
    libc::RLIMIT_RTPRIO,
];

/// Whether this process may choose its user, or is in a user namespace of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privilege {
    Root,
    UserNamespace,
}

/// In the outer process. The pid namespace is for its next child.
pub(crate) fn enter_namespaces() -> Result<Privilege, Refusal> {
    // A preference, not a wall: where there is no /proc, it stays as it is.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_PREFERENCE);
    if rustix::process::geteuid().is_root() {
        sys::unshare(NAMESPACES)
            .during(|| "making namespaces as root".to_owned())
            .map_err(|failure| {
                refuse(
                    "namespaces",
                    &failure,
                    "give the process the Linux capability CAP_SYS_ADMIN, or start it as a user \
                     other than root who may make user namespaces",
                )
            })?;
        return Ok(Privilege::Root);
    }
    become_own_namespace().map_err(|failure| {
        refuse(
            "user namespace",
            &failure,
            "allow user namespaces to ordinary users (`sysctl user.max_user_namespaces=10000`, on Debian also \
             `kernel.unprivileged_userns_clone=1`, on Ubuntu `kernel.apparmor_restrict_unprivileged_userns=0` or a profile \
             for this program), or start the service as root",
        )
    })?;
    Ok(Privilege::UserNamespace)
}

fn become_own_namespace() -> Outcome<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    sys::unshare(NAMESPACES | libc::CLONE_NEWUSER)
        .during(|| "making a user namespace and others in it".to_owned())?;
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).during(|| format!("writing {file}"))
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("{0} {0} 1\n", user.as_raw()))?;
    map("gid_map", format!("{0} {0} 1\n", group.as_raw()))
}

/// In the zygote, before its guest is made. It ends with the outer process.
pub(crate) fn stand_apart() -> Result<(), Refusal> {
    end_with_parent()
        .and_then(|()| root::leave_host_propagation())
        .map_err(|failure| refuse("mount namespace", &failure, MENDING))
}

/// In the zygote, after its guest is made.
pub(crate) fn close_in(privilege: Privilege) -> Result<(), Refusal> {
    rights::new_keyring().map_err(|failure| refuse("keyring", &failure, MENDING))?;
    empty_root().map_err(|failure| {
        let remedy = "allow this process to mount: in a container, run it with `--security-opt seccomp=unconfined` or with \
                      a profile that lets it make namespaces and mount in them";
        refuse("empty root directory", &failure, remedy)
    })?;
    limits().map_err(|failure| refuse("resource limits", &failure, MENDING))?;
    let user = (privilege == Privilege::Root).then_some(USER);
    rights::keep_no_capabilities(user)
        // A change of user forgets it.
        .and_then(|()| end_with_parent())
        .map_err(|failure| refuse("unprivileged user", &failure, MENDING))?;
    landlock::restrict(&[], landlock::Ports::Closed).map_err(|failure| {
        let remedy = "use a kernel with Landlock (5.13 or newer, `CONFIG_SECURITY_LANDLOCK=y`, `landlock` in `lsm=`)";
        refuse("Landlock", &failure, remedy)
    })?;
    sys::reset_signals();
    let closed = sys::close_from(3).during(|| "closing descriptors".to_owned());
    closed.map_err(|failure| refuse("open files", &failure, MENDING))
}

const MENDING: &str = "`bulkhead doctor` names what this machine lacks; if it finds nothing, this is a defect of Bulkhead";

fn end_with_parent() -> Outcome<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
        .during(|| "asking for the starter's death".to_owned())
}

fn empty_root() -> Outcome<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
    let staging = bulkhead_init::sys::c_string(root::STAGING)
        .during(|| "naming the staging directory".to_owned())?;
    mount(
        c"none",
        &staging,
        c"tmpfs",
        flags,
        c"size=4k,nr_inodes=2,mode=555",
    )
    .and_then(|()| std::env::set_current_dir(root::STAGING))
    .during(|| format!("mounting an empty root over {}", root::STAGING))?;
    root::change_root().during(|| "leaving the host's file tree".to_owned())
}

fn limits() -> Outcome<()> {
    let mut all: Vec<Rlimit> = NOTHING
        .into_iter()
        .map(|resource| Rlimit {
            resource,
            soft: 0,
            hard: 0,
        })
        .collect();
    // A hard limit that is lower cannot be raised, and need not be.
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let files = hard.map_or(OPEN_FILES, |hard| hard.min(OPEN_FILES));
    all.push(Rlimit {
        resource: libc::RLIMIT_NOFILE,
        soft: files,
        hard: files,
    });
    rights::limit(&all)
}

/// With what the kernel said, and what the machine's owner can do.
pub(crate) fn refuse(boundary: &str, failure: &Failure, remedy: &str) -> Refusal {
    let error = io::Error::from_raw_os_error(failure.errno);
    Refusal {
        boundary: boundary.to_owned(),
        seen: format!("{}: {error}", failure.step),
        remedy: remedy.to_owned(),
    }
}
