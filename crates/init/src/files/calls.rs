//! The kernel's calls on files.

use std::{
    ffi::CStr,
    io,
    os::fd::{OwnedFd, RawFd},
};

use crate::sys::{check, owned};

/// Flags of an open request, as the protocol has them.
mod flag {
    pub(super) const READ: u32 = 1;
    pub(super) const WRITE: u32 = 2;
    pub(super) const APPEND: u32 = 4;
    pub(super) const CREATE: u32 = 8;
    pub(super) const TRUNCATE: u32 = 16;
    pub(super) const EXCLUSIVE: u32 = 32;
}

/// Opens without waiting for anybody, at a pipe's other end say.
pub(super) fn open(path: &CStr, flags: u32, mode: u32) -> io::Result<OwnedFd> {
    let mut bits = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    bits |= match (flags & flag::READ != 0, flags & flag::WRITE != 0) {
        (true, true) => libc::O_RDWR,
        (false, true) => libc::O_WRONLY,
        _ => libc::O_RDONLY,
    };
    for (asked, bit) in [
        (flag::APPEND, libc::O_APPEND),
        (flag::CREATE, libc::O_CREAT),
        (flag::TRUNCATE, libc::O_TRUNC),
        (flag::EXCLUSIVE, libc::O_EXCL),
    ] {
        if flags & asked != 0 {
            bits |= bit;
        }
    }
    // SAFETY: the path is a C string that outlives the call.
    owned(unsafe { libc::open(path.as_ptr(), bits, mode) })
}

/// Up to the buffer's length; less only at the end of the file.
pub(super) fn read_at(fd: RawFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let at = i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let from = at.saturating_add(i64::try_from(done).unwrap_or(i64::MAX));
        // SAFETY: the buffer is valid for its length.
        let mut read = unsafe { libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), from) };
        if read < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESPIPE) {
            // SAFETY: as above.
            read = unsafe { libc::read(fd, rest.as_mut_ptr().cast(), rest.len()) };
        }
        match usize::try_from(read) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(done)
}

pub(super) fn write_at(fd: RawFd, mut data: &[u8], offset: u64) -> io::Result<()> {
    let mut at = i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    while !data.is_empty() {
        // SAFETY: the data is valid for its length.
        let mut written = unsafe { libc::pwrite(fd, data.as_ptr().cast(), data.len(), at) };
        if written < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESPIPE) {
            // SAFETY: as above.
            written = unsafe { libc::write(fd, data.as_ptr().cast(), data.len()) };
        }
        let count = usize::try_from(written).map_err(|_| io::Error::last_os_error())?;
        data = &data[count..];
        at = at.saturating_add(i64::try_from(count).unwrap_or(0));
    }
    Ok(())
}

pub(super) fn stat(dir: RawFd, path: &CStr, flags: i32) -> io::Result<Box<libc::statx>> {
    // SAFETY: all-zero is valid memory for the kernel to fill.
    let mut found: Box<libc::statx> = Box::new(unsafe { std::mem::zeroed() });
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    // SAFETY: the path is a C string and the struct is valid for the call.
    check(unsafe { libc::statx(dir, path.as_ptr(), flags, mask, &raw mut *found) })?;
    Ok(found)
}

/// What a change goes to.
#[derive(Clone, Copy)]
pub(super) enum At<'a> {
    Path(&'a CStr),
    Link(&'a CStr),
    File(RawFd),
}

pub(super) fn chmod(at: At<'_>, permissions: u32) -> io::Result<()> {
    let mode = permissions & 0o7777;
    // SAFETY: paths are C strings that outlive the call.
    check(unsafe {
        match at {
            At::Path(path) => libc::chmod(path.as_ptr(), mode),
            At::Link(path) => libc::fchmodat(
                libc::AT_FDCWD,
                path.as_ptr(),
                mode,
                libc::AT_SYMLINK_NOFOLLOW,
            ),
            At::File(fd) => libc::fchmod(fd, mode),
        }
    })
    .map(drop)
}

pub(super) fn chown(at: At<'_>, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: paths are C strings that outlive the call.
    let changed = check(unsafe {
        match at {
            At::Path(path) => libc::chown(path.as_ptr(), uid, gid),
            At::Link(path) => libc::lchown(path.as_ptr(), uid, gid),
            At::File(fd) => libc::fchown(fd, uid, gid),
        }
    });
    match changed {
        // A user whom this place does not have. Elsewhere the same request is not permitted, and the difference helps nobody.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(io::Error::from_raw_os_error(libc::EPERM))
        }
        other => other.map(drop),
    }
}

pub(super) fn utimes(at: At<'_>, times: &[libc::timespec; 2]) -> io::Result<()> {
    // SAFETY: the two times and the path outlive the call.
    check(unsafe {
        match at {
            At::Path(path) => libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0),
            At::Link(path) => libc::utimensat(
                libc::AT_FDCWD,
                path.as_ptr(),
                times.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
            ),
            At::File(fd) => libc::futimens(fd, times.as_ptr()),
        }
    })
    .map(drop)
}

pub(super) fn truncate(at: At<'_>, size: u64) -> io::Result<()> {
    let size = i64::try_from(size).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: paths are C strings that outlive the call.
    check(unsafe {
        match at {
            At::Path(path) | At::Link(path) => libc::truncate(path.as_ptr(), size),
            At::File(fd) => libc::ftruncate(fd, size),
        }
    })
    .map(drop)
}
