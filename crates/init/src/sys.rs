//! System calls, and failures that say which step failed.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use crate::wire::Failure;

pub type Outcome<T> = Result<T, Failure>;

/// The name of a step, made only when it fails.
pub trait Context<T> {
    fn during(self, step: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn during(self, step: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| Failure {
            step: step(),
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })
    }
}

/// A C return value: negative means `errno`.
pub fn check<N: Into<i64> + Copy>(value: N) -> io::Result<i64> {
    let value = value.into();
    if value < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// A C return value that is a new descriptor.
pub fn owned<N: Into<i64> + Copy>(value: N) -> io::Result<OwnedFd> {
    let fd = check(value)?;
    let fd = RawFd::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just returned this descriptor, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn c_string(bytes: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Opens a path; `flags` always get `O_CLOEXEC`.
pub fn open(path: &str, flags: i32) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    // SAFETY: the path is a C string that outlives the call.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

pub fn open_tree(dir: Option<BorrowedFd<'_>>, path: &CStr, flags: u32) -> io::Result<OwnedFd> {
    let dir = dir.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd());
    // SAFETY: the path is a C string that outlives the call.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, dir, path.as_ptr(), flags) })
}

/// Attaches a detached tree at `target`, relative to the working directory.
pub fn move_mount(tree: BorrowedFd<'_>, target: &CStr) -> io::Result<()> {
    const FROM_EMPTY_PATH: u32 = 4;
    // SAFETY: both paths are C strings that outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            FROM_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// `struct mount_attr` of `mount_setattr(2)`.
#[repr(C)]
#[derive(Default)]
pub struct MountAttributes {
    pub set: u64,
    pub clear: u64,
    pub propagation: u64,
    pub userns_fd: u64,
}

pub fn mount_setattr(
    dir: Option<BorrowedFd<'_>>,
    path: &CStr,
    flags: i32,
    attributes: &MountAttributes,
) -> io::Result<()> {
    let dir = dir.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd());
    // SAFETY: path and attributes outlive the call, and the size is the struct's own.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir,
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    })
    .map(drop)
}

/// `struct clone_args` of `clone3(2)`.
#[repr(C)]
#[derive(Default)]
pub struct CloneArguments {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

pub const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks, with namespaces and a cgroup to be born in. Returns 0 in the child.
pub fn clone3(arguments: &CloneArguments) -> io::Result<i64> {
    // SAFETY: without CLONE_VM the child is a copy with its own memory, as after `fork`; this program has one thread, so
    // no lock can be held by another one at that moment.
    check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            std::ptr::from_ref(arguments),
            size_of::<CloneArguments>(),
        )
    })
}

pub fn mount(
    source: &CStr,
    target: &CStr,
    kind: &CStr,
    flags: libc::c_ulong,
    data: &CStr,
) -> io::Result<()> {
    // SAFETY: all strings outlive the call.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    })
    .map(drop)
}

/// One byte through a pipe or into a control file.
pub fn write_all(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the buffer is valid for its length.
    let written = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    if usize::try_from(check(i64::try_from(written).unwrap_or(-1))?) == Ok(bytes.len()) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EIO))
    }
}

/// Reads what is there; 0 is the end.
pub fn read(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let read = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Writes what fits.
pub fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Waits for data or the other end's closing, for a time.
pub fn is_readable(fd: BorrowedFd<'_>, milliseconds: i32) -> bool {
    let mut polled = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the one entry outlives the call.
    unsafe { libc::poll(&raw mut polled, 1, milliseconds) > 0 }
}

/// Both ends of a pipe, closed on exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((owned(ends[0])?, owned(ends[1])?))
}

/// Blocks every signal that can be blocked and returns the set.
pub fn block_all_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: an all-zero signal set is valid memory for `sigfillset` to fill.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for both calls.
    check(unsafe {
        libc::sigfillset(&raw mut set);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    })?;
    Ok(set)
}

/// `prctl` with one number.
pub fn prctl(option: i32, value: u64) -> io::Result<()> {
    // SAFETY: the options used here take numbers only; the unused arguments are zero as the kernel demands.
    check(unsafe { libc::prctl(option, value, 0_u64, 0_u64, 0_u64) }).map(drop)
}

/// Ends this process at once, without running anything more of it.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}
