//! The system calls behind a local file system, and what they say in a host's words.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags, StatxTimestamp, Timespec, Timestamps},
    io::{Errno, Result},
};

use super::place::{Base, Found};
use crate::{Access, Entry, FileKind, OpenFlags, Stat};

pub(super) fn open_flags(flags: OpenFlags) -> OFlags {
    let mut wanted = match (flags.read, flags.write || flags.append) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    };
    for (asked, flag) in [
        (flags.append, OFlags::APPEND),
        (flags.create, OFlags::CREATE),
        (flags.exclusive, OFlags::EXCL),
        (flags.truncate, OFlags::TRUNC),
    ] {
        wanted.set(flag, asked);
    }
    wanted
}

/// The permission bits, with setuid, setgid and sticky.
pub(super) const fn mode(permissions: u32) -> Mode {
    Mode::from_raw_mode(permissions & 0o7777)
}

pub(super) fn stat(file: impl AsFd, path: &Path, flags: AtFlags) -> Result<Stat> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let seen = rustix::fs::statx(file, path, flags, mask)?;
    let raw = u32::from(seen.stx_mode);
    let knows_birth = StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::BTIME);
    Ok(Stat {
        kind: kind(FileType::from_raw_mode(raw)),
        permissions: raw & 0o7777,
        size: seen.stx_size,
        uid: seen.stx_uid,
        gid: seen.stx_gid,
        accessed: time(&seen.stx_atime),
        modified: time(&seen.stx_mtime),
        changed: time(&seen.stx_ctime),
        born: knows_birth.then(|| time(&seen.stx_btime)),
        device: rustix::fs::makedev(seen.stx_dev_major, seen.stx_dev_minor),
        inode: seen.stx_ino,
        links: u64::from(seen.stx_nlink),
        special_device: rustix::fs::makedev(seen.stx_rdev_major, seen.stx_rdev_minor),
        block_size: u64::from(seen.stx_blksize),
        blocks: seen.stx_blocks,
    })
}

const fn kind(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => FileKind::Unknown,
    }
}

fn time(stamp: &StatxTimestamp) -> SystemTime {
    let part = Duration::from_nanos(u64::from(stamp.tv_nsec));
    let whole = Duration::from_secs(stamp.tv_sec.unsigned_abs());
    let second = if stamp.tv_sec < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    second
        .and_then(|second| second.checked_add(part))
        .unwrap_or(UNIX_EPOCH)
}

pub(super) fn timestamps(accessed: SystemTime, modified: SystemTime) -> Timestamps {
    Timestamps {
        last_access: timespec(accessed),
        last_modification: timespec(modified),
    }
}

/// The nanoseconds count upwards from the second before, also before 1970.
fn timespec(time: SystemTime) -> Timespec {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: seconds(after),
            tv_nsec: after.subsec_nanos().into(),
        },
        Err(before) => {
            let before = before.duration();
            let part = before.subsec_nanos();
            let borrowed = i64::from(part > 0);
            Timespec {
                tv_sec: -seconds(before) - borrowed,
                tv_nsec: i64::from(if part > 0 { 1_000_000_000 - part } else { 0 }),
            }
        }
    }
}

pub(super) fn readdir(base: &Base, path: &Path) -> Result<Vec<Entry>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let dir = base.open(path, flags, Mode::empty())?;
    let mut entries = Vec::new();
    // Reading needs no right to enter, which opening it once more would.
    let mut names = Dir::new(dir)?;
    while let Some(entry) = names.read() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            let name = name.to_owned();
            let kind = match kind(entry.file_type()) {
                FileKind::Unknown => kind_of(names.fd()?, entry.file_name()),
                known => known,
            };
            entries.push(Entry { name, kind });
        }
    }
    Ok(entries)
}

/// For file systems that do not say the kind beside the name. A name that is gone meanwhile has none.
fn kind_of(dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> FileKind {
    let seen = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    seen.map_or(FileKind::Unknown, |seen| {
        kind(FileType::from_raw_mode(seen.st_mode))
    })
}

pub(super) fn readlink(found: &Found) -> Result<PathBuf> {
    let (file, path, flags) = found.at();
    let target = match rustix::fs::readlinkat(file, path, Vec::new()) {
        // What the kernel says for a descriptor that is no link.
        Err(Errno::NOENT) if flags.contains(AtFlags::EMPTY_PATH) => Err(Errno::INVAL),
        other => other,
    }?;
    Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

pub(super) fn access(access: Access) -> rustix::fs::Access {
    use rustix::fs::Access as Bits;
    let mut wanted = Bits::EXISTS;
    wanted.set(Bits::READ_OK, access.read);
    wanted.set(Bits::WRITE_OK, access.write);
    wanted.set(Bits::EXEC_OK, access.execute);
    wanted
}
