//! The mount tree, built step by step under a staging directory and then made the root.

use std::{
    ffi::CStr,
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt as _,
    },
};

use bulkhead_init::{
    root::{STAGING, change_root},
    wire::Step,
};

use crate::{
    pid1::AGENT,
    sys::{
        Context, MountAttributes, Outcome, c_string, check, mount, mount_setattr, move_mount, open,
    },
};

/// Where in the old tree a mount is put that the new one is to lose: it goes with the old tree. Unmounting it by itself would
/// make the kernel wait for all processors once more.
const DISCARDED: &CStr = c"/proc";
const QUIET: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
const ATTR_READ_ONLY: u64 = 1;
/// All sandboxes of a machine share its terminals; one must not be able to take them all.
const TERMINALS: u32 = 256;

/// Performs the steps and changes into the tree they made; the host's tree is gone after that.
pub(crate) fn build(steps: &[Step], trees: &[OwnedFd]) -> Outcome<()> {
    for (index, step) in steps.iter().enumerate() {
        perform(step, trees).during(|| describe(step))?;
        if index == 0 {
            std::env::set_current_dir(STAGING)
                .during(|| "entering the sandbox's root".to_owned())?;
        }
    }
    change_root().during(|| "leaving the host's file tree".to_owned())
}

fn perform(step: &Step, trees: &[OwnedFd]) -> io::Result<()> {
    match step {
        Step::Attach { tree, target } => attach(trees.get(usize::from(*tree)), target),
        Step::Device { name } => {
            let source = c_string(format!("/dev/{name}"))?;
            mount(
                &source,
                &relative(&format!("dev/{name}"))?,
                c"",
                libc::MS_BIND,
                c"",
            )
        }
        Step::Tmpfs { target, options } => {
            let flags = libc::MS_NOSUID | libc::MS_NODEV;
            mount(
                c"tmpfs",
                &relative(target)?,
                c"tmpfs",
                flags,
                &c_string(options.as_str())?,
            )
        }
        // Each user sees only their own processes. Where a kernel does not know the option in a user namespace, the mount
        // fails, and so does the sandbox.
        Step::Proc { target } => mount(c"proc", &relative(target)?, c"proc", QUIET, c"hidepid=2"),
        Step::Terminals { target } => {
            let options = c_string(format!(
                "newinstance,ptmxmode=0666,mode=620,gid={AGENT},max={TERMINALS}"
            ))?;
            mount(
                c"devpts",
                &relative(target)?,
                c"devpts",
                libc::MS_NOSUID | libc::MS_NOEXEC,
                &options,
            )
        }
        Step::Directory { path, mode } => directory(path, *mode),
        Step::Bind { from, to } => mount(&relative(from)?, &relative(to)?, c"", libc::MS_BIND, c""),
        Step::Discard { target } => mount(&relative(target)?, DISCARDED, c"", libc::MS_MOVE, c""),
        Step::Mask { target } => mask(target),
        Step::ReadOnly { target } => read_only(target),
        Step::Bound { file, most } => bound(file, *most),
    }
}

fn attach(tree: Option<&OwnedFd>, target: &str) -> io::Result<()> {
    let tree = tree.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
    let target = if target.is_empty() {
        c_string(STAGING)?
    } else {
        relative(target)?
    };
    move_mount(tree.as_fd(), &target)
}

/// Targets are relative to the new root, which is the working directory; nothing may climb out of it.
fn relative(path: &str) -> io::Result<std::ffi::CString> {
    let climbs = path.starts_with('/') || path.split('/').any(|part| part == "..");
    if climbs {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    c_string(if path.is_empty() { "." } else { path })
}

fn directory(path: &str, mode: u32) -> io::Result<()> {
    let name = relative(path)?;
    if let Err(error) = fs::create_dir(path)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    // SAFETY: the path is a C string that outlives the call.
    check(unsafe { libc::chown(name.as_ptr(), AGENT, AGENT) }).map(drop)
}

/// A directory is covered by an empty one that cannot be written, a file by `/dev/null`.
fn mask(target: &str) -> io::Result<()> {
    let path = relative(target)?;
    match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() => mount(
            c"tmpfs",
            &path,
            c"tmpfs",
            QUIET | libc::MS_RDONLY,
            c"size=4k,nr_inodes=2,mode=555",
        ),
        Ok(_) => mount(c"dev/null", &path, c"", libc::MS_BIND, c""),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn read_only(target: &str) -> io::Result<()> {
    if fs::symlink_metadata(target).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    let path = relative(target)?;
    mount(&path, &path, c"", libc::MS_BIND | libc::MS_REC, c"")?;
    let attributes = MountAttributes {
        set: ATTR_READ_ONLY,
        ..Default::default()
    };
    mount_setattr(None, &path, 0, &attributes)
}

/// What a kernel does not count needs no bound.
fn bound(file: &str, most: u64) -> io::Result<()> {
    relative(file)?;
    match fs::write(file, most.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Directories that the parent looks at from outside, by descriptors that give nothing but a look.
pub(crate) fn open_watched(paths: &[String]) -> Outcome<Vec<OwnedFd>> {
    let open = |path: &String| {
        open(path, libc::O_PATH | libc::O_DIRECTORY)
            .during(|| format!("opening {path} in the sandbox"))
    };
    paths.iter().map(open).collect()
}

fn describe(step: &Step) -> String {
    match step {
        Step::Attach { target, .. } => format!("mounting /{target} in the sandbox"),
        Step::Device { name } => format!("mounting /dev/{name} in the sandbox"),
        Step::Tmpfs { target, options } => {
            format!("mounting a tmpfs ({options}) on /{target} in the sandbox")
        }
        Step::Proc { target } => format!("mounting the sandbox's own /{target}"),
        Step::Terminals { target } => format!("mounting the sandbox's own terminals on /{target}"),
        Step::Directory { path, .. } => format!("making the directory /{path} in the sandbox"),
        Step::Bind { from, to } => format!("mounting /{from} on /{to} in the sandbox"),
        Step::Discard { target } => format!("taking /{target} out of the sandbox"),
        Step::Mask { target } => format!("covering /{target} in the sandbox"),
        Step::ReadOnly { target } => format!("making /{target} read-only in the sandbox"),
        Step::Bound { file, .. } => format!("setting /{file} in the sandbox"),
    }
}
