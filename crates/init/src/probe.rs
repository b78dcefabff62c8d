//! What this kernel offers, tried one by one, for `bulkhead doctor`: a sandbox needs all of it, and its failure alone would not
//! say which is missing.

use std::io;

use bulkhead_init::wire::Probed;

use crate::{
    landlock,
    sys::{CloneArguments, check, clone3, exit_now},
};

const NAMESPACES: [(&str, i32); 7] = [
    ("user-namespace", 0),
    ("pid-namespace", libc::CLONE_NEWPID),
    ("mount-namespace", libc::CLONE_NEWNS),
    ("network-namespace", libc::CLONE_NEWNET),
    ("ipc-namespace", libc::CLONE_NEWIPC),
    ("uts-namespace", libc::CLONE_NEWUTS),
    ("cgroup-namespace", libc::CLONE_NEWCGROUP),
];

/// Errors as numbers; for Landlock its ABI version as the value.
pub(crate) fn all() -> Vec<Probed> {
    let probed = |name: &str, result: io::Result<i64>| Probed {
        name: name.to_owned(),
        value: result
            .as_ref()
            .map_or(0, |value| i32::try_from(*value).unwrap_or(0)),
        errno: result
            .err()
            .map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO)),
    };
    let mut found: Vec<Probed> = NAMESPACES
        .iter()
        .map(|(name, flag)| probed(name, namespace(*flag)))
        .collect();
    found.push(probed("landlock", landlock::abi()));
    found.push(probed("seccomp", seccomp()));
    found
}

/// Together with a user namespace, as the sandbox makes it.
fn namespace(flag: i32) -> io::Result<i64> {
    let arguments = CloneArguments {
        flags: u64::from((libc::CLONE_NEWUSER | flag).cast_unsigned()),
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        ..Default::default()
    };
    let child = clone3(&arguments)?;
    if child == 0 {
        exit_now(0);
    }
    let child = i32::try_from(child).unwrap_or(-1);
    // SAFETY: a null status pointer is allowed.
    check(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) })
}

/// Whether filters may return errors, which is what ours do.
fn seccomp() -> io::Result<i64> {
    const GET_ACTION_AVAIL: u32 = 2;
    let return_errno: u32 = 0x0005_0000;
    // SAFETY: the action outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            GET_ACTION_AVAIL,
            0_u32,
            &raw const return_errno,
        )
    })
}
