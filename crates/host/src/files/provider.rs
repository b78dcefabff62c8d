//! What a host's file system is made of: the operations of its kernel, by path and by open file.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::io::Errno;

use super::FsError;

/// What a provider can do at all. What it cannot fails with `ENOSYS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    pub readonly: bool,
    pub symlinks: bool,
    pub watch: bool,
}

/// How a file is opened; the words are those of `open(2)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub create: bool,
    pub exclusive: bool,
    pub truncate: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    Unknown,
}

/// What `stat(2)` says, as far as the provider knows it: over SFTP there is no inode, device or count of links,
/// and times are whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: FileKind,
    /// The permission bits with setuid, setgid and sticky; not the kind.
    pub permissions: u32,
    pub size: u64,
    pub uid: u32,
    pub gid: u32,
    pub accessed: SystemTime,
    pub modified: SystemTime,
    pub changed: SystemTime,
    pub born: Option<SystemTime>,
    pub device: u64,
    pub inode: u64,
    pub links: u64,
    pub special_device: u64,
    pub block_size: u64,
    pub blocks: u64,
}

/// One name in a directory. The name is bytes: it need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    pub kind: FileKind,
}

/// Rights asked for by [`Provider::access`]; none of them asks whether the file is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    pub read: bool,
    pub write: bool,
    pub execute: bool,
}

/// Whether an operation on a symbolic link goes to the link or to what it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    Yes,
    No,
}

/// What a watcher saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub kind: ChangeKind,
    /// The name inside the watched directory, or of the watched file.
    pub name: OsString,
}

/// Node's two kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// A name appeared or went away.
    Rename,
    Change,
}

/// A file system by its primitive operations. Everything else that [`FileSystem`](super::FileSystem) offers is
/// built from them. An operation that a provider does not have fails with `ENOSYS`. Paths are absolute, or relative to the host's own working directory. The first operation
/// connects the host (H2). An error carries Node's code, system call and path.
#[async_trait]
#[expect(
    unused_variables,
    reason = "the names say what an implementation is given"
)]
pub trait Provider: Send + Sync + fmt::Debug {
    fn capabilities(&self) -> Capabilities;
    async fn open(
        &self,
        path: &Path,
        flags: OpenFlags,
        permissions: u32,
    ) -> Result<Box<dyn OpenFile>, FsError> {
        Err(FsError::new(Errno::NOSYS, "open", path))
    }
    async fn stat(&self, path: &Path, follow: Follow) -> Result<Stat, FsError> {
        Err(FsError::new(Errno::NOSYS, "stat", path))
    }
    async fn readdir(&self, path: &Path) -> Result<Vec<Entry>, FsError> {
        Err(FsError::new(Errno::NOSYS, "scandir", path))
    }
    async fn mkdir(&self, path: &Path, permissions: u32) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "mkdir", path))
    }
    async fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "rmdir", path))
    }
    async fn unlink(&self, path: &Path) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "unlink", path))
    }
    async fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "rename", from))
    }
    async fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "link", existing))
    }
    async fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "symlink", target))
    }
    async fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        Err(FsError::new(Errno::NOSYS, "readlink", path))
    }
    async fn realpath(&self, path: &Path) -> Result<PathBuf, FsError> {
        Err(FsError::new(Errno::NOSYS, "realpath", path))
    }
    async fn access(&self, path: &Path, access: Access) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "access", path))
    }
    async fn chmod(&self, path: &Path, permissions: u32) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "chmod", path))
    }
    async fn chown(&self, path: &Path, uid: u32, gid: u32, follow: Follow) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "chown", path))
    }
    async fn utimes(
        &self,
        path: &Path,
        accessed: SystemTime,
        modified: SystemTime,
        follow: Follow,
    ) -> Result<(), FsError> {
        Err(FsError::new(Errno::NOSYS, "utime", path))
    }
    async fn watch(&self, path: &Path) -> Result<Box<dyn Watcher>, FsError> {
        Err(FsError::new(Errno::NOSYS, "watch", path))
    }
}

/// An open file. Reads and writes name their offset, so that several can be under way at once.
#[async_trait]
pub trait OpenFile: Send + Sync {
    /// Up to `len` bytes; none is the end of the file. A provider may return fewer.
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, FsError>;
    /// All of `data`. A file that was opened for appending ignores the offset.
    async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), FsError>;
    async fn stat(&self) -> Result<Stat, FsError>;
    async fn truncate(&self, len: u64) -> Result<(), FsError>;
    async fn chmod(&self, permissions: u32) -> Result<(), FsError>;
    async fn chown(&self, uid: u32, gid: u32) -> Result<(), FsError>;
    async fn utimes(&self, accessed: SystemTime, modified: SystemTime) -> Result<(), FsError>;
    async fn sync(&self) -> Result<(), FsError>;
    /// Says what closing says; a file that is dropped is closed without that.
    async fn close(self: Box<Self>) -> Result<(), FsError>;
}

/// A watched file or directory, until it is dropped.
#[async_trait]
pub trait Watcher: Send {
    /// The next change; none when the host ended.
    async fn next(&mut self) -> Option<Result<Change, FsError>>;
}
