//! The options of Node's methods, with Node's defaults.

use std::time::Duration;

use super::flags::Flags;

/// The permissions that a new file gets, before the host's umask.
const NEW_FILE: u32 = 0o666;
/// Node's size of a piece of a file stream.
const PIECE_BYTES: usize = 64 << 10;

/// For `writeFile` and `appendFile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    pub flags: Flags,
    pub permissions: u32,
    /// Whether the data is on the disk when the method returns.
    pub flush: bool,
}

impl WriteOptions {
    pub const WRITE: Self = Self::with(Flags::WRITE);
    pub const APPEND: Self = Self::with(Flags::APPEND);

    pub const fn with(flags: Flags) -> Self {
        Self {
            flags,
            permissions: NEW_FILE,
            flush: false,
        }
    }
}

/// For `rm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RmOptions {
    /// Whether directories are removed with what is in them.
    pub recursive: bool,
    /// Whether it is no error that there is nothing.
    pub force: bool,
    /// How often a step is tried again that failed because something was busy; only with `recursive`.
    pub max_retries: u32,
    /// The wait before the first retry; each later one waits this much longer.
    pub retry_delay: Duration,
}

impl Default for RmOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            force: false,
            max_retries: 0,
            retry_delay: Duration::from_millis(100),
        }
    }
}

/// What `cp` does with a destination that is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Existing {
    #[default]
    Overwrite,
    /// Leave it and go on.
    Keep,
    Refuse,
}

/// What `cp` makes of a symbolic link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Links {
    /// A link to the same place, written as an absolute path.
    #[default]
    Resolve,
    /// The same text.
    Verbatim,
    /// A copy of what it leads to.
    Follow,
}

/// For `cp`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyOptions {
    pub recursive: bool,
    pub existing: Existing,
    pub links: Links,
    pub preserve_timestamps: bool,
}

/// For `createReadStream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadStreamOptions {
    /// The first byte. None is wherever reading begins, which for a pipe is the next byte.
    pub start: Option<u64>,
    /// The last byte, which is still read.
    pub end: Option<u64>,
    /// The largest piece.
    pub high_water_mark_bytes: usize,
}

impl Default for ReadStreamOptions {
    fn default() -> Self {
        Self {
            start: None,
            end: None,
            high_water_mark_bytes: PIECE_BYTES,
        }
    }
}

/// For `createWriteStream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteStreamOptions {
    pub flags: Flags,
    pub permissions: u32,
    /// Where writing begins; with flags that do not empty the file.
    pub start: Option<u64>,
    /// Whether the data is on the disk when the stream has finished.
    pub flush: bool,
}

impl Default for WriteStreamOptions {
    fn default() -> Self {
        Self {
            flags: Flags::WRITE,
            permissions: NEW_FILE,
            start: None,
            flush: false,
        }
    }
}
