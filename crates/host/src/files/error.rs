//! Node's errors: a code, the system call and the path.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// One failed operation on a file. `Display` is Node's message:
/// `ENOENT: no such file or directory, open '/x'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsError {
    pub code: Code,
    /// Node's name of the operation, such as `open` or `scandir`.
    pub syscall: &'static str,
    pub path: Option<PathBuf>,
    /// The second path of `rename`, `link`, `symlink` and `copyfile`.
    pub dest: Option<PathBuf>,
    /// What is known besides, for people: the words of a connection that broke, say.
    pub detail: Option<String>,
}

/// What went wrong: a number of Linux, whatever system the host is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(rustix::io::Errno);

impl Code {
    pub const fn of(errno: rustix::io::Errno) -> Self {
        Self(errno)
    }

    pub const fn errno(self) -> rustix::io::Errno {
        self.0
    }
}

impl FsError {
    pub fn new(errno: rustix::io::Errno, syscall: &'static str, path: &Path) -> Self {
        Self {
            code: Code::of(errno),
            syscall,
            path: Some(path.to_owned()),
            dest: None,
            detail: None,
        }
    }

    /// What fails on an open file names no path.
    pub const fn of_file(errno: rustix::io::Errno, syscall: &'static str) -> Self {
        Self {
            code: Code::of(errno),
            syscall,
            path: None,
            dest: None,
            detail: None,
        }
    }

    #[must_use]
    pub fn dest(mut self, dest: &Path) -> Self {
        self.dest = Some(dest.to_owned());
        self
    }

    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, words) = (self.code.name(), self.code.words());
        write!(f, "{name}: {words}, {}", self.syscall)?;
        if let Some(path) = &self.path {
            write!(f, " '{}'", path.display())?;
        }
        if let Some(dest) = &self.dest {
            write!(f, " -> '{}'", dest.display())?;
        }
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FsError {}

macro_rules! codes {
    ($($errno:ident $name:literal $words:literal,)*) => {
        impl Code {
            /// Node's code.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $(rustix::io::Errno::$errno => $name,)*
                    _ => "UNKNOWN",
                }
            }

            /// libuv's words for it.
            pub const fn words(self) -> &'static str {
                match self.0 {
                    $(rustix::io::Errno::$errno => $words,)*
                    _ => "unknown error",
                }
            }
        }
    };
}

codes! {
    PERM "EPERM" "operation not permitted",
    NOENT "ENOENT" "no such file or directory",
    INTR "EINTR" "interrupted system call",
    IO "EIO" "i/o error",
    NXIO "ENXIO" "no such device or address",
    TOOBIG "E2BIG" "argument list too long",
    BADF "EBADF" "bad file descriptor",
    AGAIN "EAGAIN" "resource temporarily unavailable",
    NOMEM "ENOMEM" "not enough memory",
    ACCESS "EACCES" "permission denied",
    BUSY "EBUSY" "resource busy or locked",
    EXIST "EEXIST" "file already exists",
    XDEV "EXDEV" "cross-device link not permitted",
    NODEV "ENODEV" "no such device",
    NOTDIR "ENOTDIR" "not a directory",
    ISDIR "EISDIR" "illegal operation on a directory",
    INVAL "EINVAL" "invalid argument",
    NFILE "ENFILE" "file table overflow",
    MFILE "EMFILE" "too many open files",
    NOTTY "ENOTTY" "inappropriate ioctl for device",
    TXTBSY "ETXTBSY" "text file is busy",
    FBIG "EFBIG" "file too large",
    NOSPC "ENOSPC" "no space left on device",
    SPIPE "ESPIPE" "invalid seek",
    ROFS "EROFS" "read-only file system",
    MLINK "EMLINK" "too many links",
    PIPE "EPIPE" "broken pipe",
    NAMETOOLONG "ENAMETOOLONG" "name too long",
    NOSYS "ENOSYS" "function not implemented",
    NOTEMPTY "ENOTEMPTY" "directory not empty",
    LOOP "ELOOP" "too many symbolic links encountered",
    OVERFLOW "EOVERFLOW" "value too large for defined data type",
    NOTSUP "ENOTSUP" "operation not supported on socket",
    CONNRESET "ECONNRESET" "connection reset by peer",
    CONNREFUSED "ECONNREFUSED" "connection refused",
    TIMEDOUT "ETIMEDOUT" "connection timed out",
    STALE "ESTALE" "stale file handle",
    DQUOT "EDQUOT" "disk quota exceeded",
}
