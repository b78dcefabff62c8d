//! A root directory of one's own, in a mount namespace of one's own.

use std::{ffi::CStr, io};

use crate::sys::{Context, Outcome, check, mount};

/// A directory that every machine has. What it holds outside is not touched: the new root only lies on top of it, and
/// only in the mount namespace that is being made.
pub const STAGING: &str = "/tmp";

/// No mount made from here on reaches the host, nor the other way round.
pub fn leave_host_propagation() -> Outcome<()> {
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE, c"")
        .during(|| "separating the sandbox's mounts from the host's".to_owned())
}

/// Makes the working directory, which must be a mount, the root: `pivot_root(".", ".")` stacks the old root on it, from where
/// that is detached whole.
pub fn change_root() -> io::Result<()> {
    const HERE: &CStr = c".";
    // SAFETY: the paths are C strings that outlive the calls.
    unsafe {
        check(libc::syscall(
            libc::SYS_pivot_root,
            HERE.as_ptr(),
            HERE.as_ptr(),
        ))?;
        check(libc::umount2(HERE.as_ptr(), libc::MNT_DETACH))?;
    }
    std::env::set_current_dir("/")
}
