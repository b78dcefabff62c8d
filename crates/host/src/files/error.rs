//! Node's errors: a code, the system call and the path.

use std::{
    fmt, io,
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
    /// Present where Node itself refuses what no system call was asked for.
    pub refusal: Option<Refusal>,
}

/// Node's own refusals in `rm` and `cp`, which have codes and words of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    IsDirectory,
    CopyExists,
    CopyInvalid,
    CopyDirectoryToOther,
    CopyOtherToDirectory,
    CopyIntoLinked,
    CopySocket,
    CopyFifo,
    CopyUnknown,
}

impl Refusal {
    /// Node's code.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IsDirectory => "ERR_FS_EISDIR",
            Self::CopyExists => "ERR_FS_CP_EEXIST",
            Self::CopyInvalid => "ERR_FS_CP_EINVAL",
            Self::CopyDirectoryToOther => "ERR_FS_CP_DIR_TO_NON_DIR",
            Self::CopyOtherToDirectory => "ERR_FS_CP_NON_DIR_TO_DIR",
            Self::CopyIntoLinked => "ERR_FS_CP_SYMLINK_TO_SUBDIRECTORY",
            Self::CopySocket => "ERR_FS_CP_SOCKET",
            Self::CopyFifo => "ERR_FS_CP_FIFO_PIPE",
            Self::CopyUnknown => "ERR_FS_CP_UNKNOWN",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::IsDirectory => "Path is a directory",
            Self::CopyExists => "Target already exists",
            Self::CopyInvalid => "Invalid src or dest",
            Self::CopyDirectoryToOther => "Cannot overwrite non-directory with directory",
            Self::CopyOtherToDirectory => "Cannot overwrite directory with non-directory",
            Self::CopyIntoLinked => "Cannot overwrite symlink in subdirectory of self",
            Self::CopySocket => "Cannot copy a socket file",
            Self::CopyFifo => "Cannot copy a FIFO pipe",
            Self::CopyUnknown => "Cannot copy an unknown file type",
        }
    }

    const fn errno(self) -> rustix::io::Errno {
        use rustix::io::Errno;
        match self {
            Self::IsDirectory | Self::CopyDirectoryToOther => Errno::ISDIR,
            Self::CopyExists => Errno::EXIST,
            Self::CopyOtherToDirectory => Errno::NOTDIR,
            Self::CopyInvalid
            | Self::CopyIntoLinked
            | Self::CopySocket
            | Self::CopyFifo
            | Self::CopyUnknown => Errno::INVAL,
        }
    }
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
            refusal: None,
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
            refusal: None,
        }
    }

    /// What Node refuses by itself, and why.
    pub(super) fn refused(
        refusal: Refusal,
        syscall: &'static str,
        path: &Path,
        why: impl Into<String>,
    ) -> Self {
        Self {
            refusal: Some(refusal),
            ..Self::new(refusal.errno(), syscall, path).detail(why)
        }
    }

    /// Node's `code`.
    pub fn name(&self) -> &'static str {
        self.refusal.map_or(self.code.name(), Refusal::name)
    }

    /// Node's `errno`: negative where the system refused, positive where Node did.
    pub fn number(&self) -> i32 {
        let number = self.code.errno().raw_os_error();
        if self.refusal.is_some() {
            number
        } else {
            -number
        }
    }

    /// The same failure of the operation that this one was a step of.
    #[must_use]
    pub(super) const fn during(mut self, syscall: &'static str) -> Self {
        self.syscall = syscall;
        self
    }

    /// The same failure, told with the path that was asked for.
    #[must_use]
    pub(super) fn at(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    pub(super) fn is(&self, errno: rustix::io::Errno) -> bool {
        self.refusal.is_none() && self.code.errno() == errno
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
        if let Some(refusal) = self.refusal {
            let why = self.detail.as_deref().unwrap_or(words);
            write!(
                f,
                "{}: {} returned {name} ({why})",
                refusal.words(),
                self.syscall
            )?;
            return match &self.path {
                Some(path) => write!(f, " {}", path.display()),
                None => Ok(()),
            };
        }
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

/// For the standard traits of streams; the error itself is the source.
impl From<FsError> for io::Error {
    fn from(error: FsError) -> Self {
        let kind = Self::from(error.code.errno()).kind();
        Self::new(kind, error)
    }
}

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
