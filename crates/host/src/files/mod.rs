//! File systems of hosts (H9): a [`Provider`] has the primitive operations, [`FileSystem`] Node's methods.
//!
//! What Node does in several steps is done in the same steps here, so that the same step fails with the same code,
//! system call and path. `tests/node-errors` records what the real Node answers, and the conformance suite compares
//! every host with that.
//!
//! Names are bytes and need not be UTF-8. Data moves in pieces of bounded size; only the methods that return a whole
//! file hold one in memory, and none that is longer than [`READ_FILE_MAX_BYTES`].

mod blocking;
mod copy;
mod error;
mod flags;
mod handle;
mod lexical;
mod options;
mod provider;
mod remove;
mod stats;
mod stream;
mod tree;
mod whole;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

pub use blocking::{BlockingFile, BlockingFileSystem};
pub use error::{Code, FsError, Refusal};
pub use flags::{Flags, Sync, UnknownFlags};
pub use handle::FileHandle;
pub use options::{
    CopyOptions, Existing, Links, ReadStreamOptions, RmOptions, WriteOptions, WriteStreamOptions,
};
pub use provider::{
    Access, Capabilities, Change, ChangeKind, Entry, FileKind, Follow, OpenFile, OpenFlags,
    Provider, Stat, Watcher,
};
pub use stats::Dirent;
pub use stream::{ReadStream, WriteStream};
pub use tree::Dir;
pub use whole::{READ_FILE_MAX_BYTES, Replace};

/// Node's file system over a host's provider. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct FileSystem {
    provider: Arc<dyn Provider>,
}

/// What is one operation of the provider. The other methods are in the modules beside this one.
impl FileSystem {
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider }
    }

    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    pub async fn stat(&self, path: &Path) -> Result<Stat, FsError> {
        self.provider.stat(path, Follow::Yes).await
    }

    pub async fn lstat(&self, path: &Path) -> Result<Stat, FsError> {
        self.provider.stat(path, Follow::No).await
    }

    /// The names in a directory, in the order of their bytes.
    pub async fn readdir(&self, path: &Path) -> Result<Vec<OsString>, FsError> {
        let entries = self.entries(path).await?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    pub async fn mkdir(&self, path: &Path, permissions: u32) -> Result<(), FsError> {
        self.provider.mkdir(path, permissions).await
    }

    pub async fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.provider.rmdir(path).await
    }

    pub async fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.provider.unlink(path).await
    }

    pub async fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.provider.rename(from, to).await
    }

    pub async fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        self.provider.link(existing, new).await
    }

    pub async fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        self.provider.symlink(target, path).await
    }

    pub async fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.provider.readlink(path).await
    }

    pub async fn realpath(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.provider.realpath(path).await
    }

    pub async fn access(&self, path: &Path, access: Access) -> Result<(), FsError> {
        self.provider.access(path, access).await
    }

    /// Whether the path leads to something. Where that cannot be told, it does not.
    pub async fn exists(&self, path: &Path) -> bool {
        self.access(path, Access::default()).await.is_ok()
    }

    pub async fn chmod(&self, path: &Path, permissions: u32) -> Result<(), FsError> {
        self.provider.chmod(path, permissions).await
    }

    /// `u32::MAX` leaves an id as it is.
    pub async fn chown(&self, path: &Path, uid: u32, gid: u32) -> Result<(), FsError> {
        self.provider.chown(path, uid, gid, Follow::Yes).await
    }

    pub async fn lchown(&self, path: &Path, uid: u32, gid: u32) -> Result<(), FsError> {
        self.provider.chown(path, uid, gid, Follow::No).await
    }

    pub async fn utimes(
        &self,
        path: &Path,
        accessed: SystemTime,
        modified: SystemTime,
    ) -> Result<(), FsError> {
        let follow = Follow::Yes;
        self.provider.utimes(path, accessed, modified, follow).await
    }

    pub async fn lutimes(
        &self,
        path: &Path,
        accessed: SystemTime,
        modified: SystemTime,
    ) -> Result<(), FsError> {
        let follow = Follow::No;
        self.provider.utimes(path, accessed, modified, follow).await
    }

    /// Watches a file, or a directory and the names in it, where the provider can
    /// ([`Capabilities::watch`]).
    pub async fn watch(&self, path: &Path) -> Result<Box<dyn Watcher>, FsError> {
        let watched = self.provider.watch(path).await;
        // Node names every path here but the empty one.
        watched.map_err(|error| match path.as_os_str() {
            none if none.is_empty() => FsError {
                path: None,
                ..error
            },
            _ => error,
        })
    }
}
