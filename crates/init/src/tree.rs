//! Pieces of the host's file systems, detached from it and waiting to be attached inside.
//!
//! The launcher opens them where it may (so directories that only root can reach work too); an unprivileged launcher
//! cannot, and PID 1 opens them in its own mount namespace before it leaves the host's tree.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use bulkhead_init::wire::{Mode, Source, Tree, TreeIds};

use crate::sys::{
    CloneArguments, Context, MountAttributes, Outcome, c_string, check, clone3, exit_now,
    mount_setattr, open, open_tree, pipe,
};

const CLONE: u32 = 1;
const CLOEXEC: u32 = 0o2_000_000;
const RECURSIVE: u32 = 0x8000;
const ATTR_IDMAP: u64 = 0x0010_0000;

/// Opens each of the plan's trees, with its flags; `passed` are the parent's own.
pub(crate) fn open_all(trees: &[Tree], passed: &[OwnedFd]) -> Outcome<Vec<OwnedFd>> {
    trees.iter().map(|tree| open_one(tree, passed)).collect()
}

fn open_one(tree: &Tree, passed: &[OwnedFd]) -> Outcome<OwnedFd> {
    match &tree.source {
        Source::Passed { index } => passed
            .get(usize::from(*index))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
            .and_then(OwnedFd::try_clone)
            .during(|| "taking a file system from the parent".to_owned()),
        Source::Path { path } => {
            let recursive = if tree.mode == (Mode::Recursive {}) {
                RECURSIVE
            } else {
                0
            };
            let opened = c_string(path.as_str())
                .and_then(|path| open_tree(None, &path, CLONE | CLOEXEC | recursive))
                .during(|| format!("opening {path} for the sandbox"))?;
            let wanted = MountAttributes {
                set: tree.attributes,
                ..Default::default()
            };
            set(opened.as_fd(), recursive, &wanted).during(|| format!("restricting {path}"))?;
            Ok(opened)
        }
    }
}

fn set(tree: BorrowedFd<'_>, recursive: u32, attributes: &MountAttributes) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | i32::try_from(recursive).unwrap_or(0);
    mount_setattr(Some(tree), c"", flags, attributes)
}

/// Shows each tree's files to the sandbox as the plan says. Only the launcher may: it takes rights outside.
pub(crate) fn map_owners(
    trees: &[Tree],
    opened: &[OwnedFd],
    init: i64,
    agent: (u32, u32),
) -> Outcome<()> {
    for (tree, fd) in trees.iter().zip(opened) {
        let namespace = match tree.ids {
            TreeIds::AsIs {} => continue,
            TreeIds::Sandbox {} => open(&format!("/proc/{init}/ns/user"), libc::O_RDONLY),
            TreeIds::Owner { uid, gid } => mapping((uid, gid), agent),
        };
        namespace
            .and_then(|namespace| idmap(fd.as_fd(), &namespace))
            .during(|| match &tree.source {
                Source::Path { path } => format!("mapping the owner of the files in {path}"),
                Source::Passed { .. } => "mapping the owner of the disk image's files".to_owned(),
            })?;
    }
    Ok(())
}

fn idmap(tree: BorrowedFd<'_>, namespace: &OwnedFd) -> io::Result<()> {
    let userns_fd = u64::try_from(namespace.as_raw_fd()).unwrap_or(u64::MAX);
    set(
        tree,
        0,
        &MountAttributes {
            set: ATTR_IDMAP,
            userns_fd,
            ..Default::default()
        },
    )
}

/// A user namespace that serves only as a table: this owner outside is that user of the sandbox.
fn mapping(owner: (u32, u32), agent: (u32, u32)) -> io::Result<OwnedFd> {
    let (waits, release) = pipe()?;
    let arguments = CloneArguments {
        flags: u64::from(libc::CLONE_NEWUSER.cast_unsigned()),
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        ..Default::default()
    };
    let child = clone3(&arguments)?;
    if child == 0 {
        drop(release);
        let mut byte = [0_u8; 1];
        // SAFETY: the buffer has room for the one byte; the read ends when the launcher closes its end or dies.
        unsafe { libc::read(waits.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
        exit_now(0);
    }
    let table = |file: &str, from: u32, to: u32| {
        fs::write(format!("/proc/{child}/{file}"), format!("{from} {to} 1"))
    };
    let namespace = table("uid_map", owner.0, agent.0)
        .and_then(|()| table("gid_map", owner.1, agent.1))
        .and_then(|()| open(&format!("/proc/{child}/ns/user"), libc::O_RDONLY));
    drop(release);
    wait_for(child)?;
    namespace
}

fn wait_for(child: i64) -> io::Result<()> {
    let child = i32::try_from(child).unwrap_or(-1);
    // SAFETY: a null status pointer is allowed.
    check(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }).map(drop)
}
