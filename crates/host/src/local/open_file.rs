//! An open file of this machine.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::{
    fs::{AtFlags, Gid, Uid},
    io::{Errno, Result as Answer},
};

use super::{calls, provider::blocking};
use crate::{FsError, OpenFile, Stat};

/// No read asks for more at once; a provider may return fewer than it is asked for.
const READ_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct LocalFile {
    file: Arc<OwnedFd>,
    path: PathBuf,
}

impl LocalFile {
    pub(super) fn new(file: OwnedFd, path: &Path) -> Self {
        Self {
            file: Arc::new(file),
            path: path.to_owned(),
        }
    }

    /// One call on the descriptor. Node names no path in what fails on an open file.
    async fn call<T: Send + 'static>(
        &self,
        syscall: &'static str,
        call: impl FnOnce(&OwnedFd) -> Answer<T> + Send + 'static,
    ) -> Result<T, FsError> {
        let file = Arc::clone(&self.file);
        let failed = move |errno| FsError::of_file(errno, syscall);
        blocking(&self.path, syscall, move || call(&file).map_err(failed)).await
    }
}

#[async_trait]
impl OpenFile for LocalFile {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, FsError> {
        let read = move |file: &OwnedFd| {
            let mut buffer = vec![0; len.min(READ_MAX)];
            let count = match rustix::io::pread(file, &mut buffer, offset) {
                // A pipe or terminal has no offsets.
                Err(Errno::SPIPE) => rustix::io::read(file, &mut buffer),
                other => other,
            }?;
            buffer.truncate(count);
            Ok(Bytes::from(buffer))
        };
        self.call("read", read).await
    }

    async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), FsError> {
        self.call("write", move |file| write_all(file, offset, &data))
            .await
    }

    async fn stat(&self) -> Result<Stat, FsError> {
        let stat = |file: &OwnedFd| calls::stat(file, Path::new(""), AtFlags::EMPTY_PATH);
        self.call("fstat", stat).await
    }

    async fn truncate(&self, len: u64) -> Result<(), FsError> {
        self.call("ftruncate", move |file| rustix::fs::ftruncate(file, len))
            .await
    }

    async fn chmod(&self, permissions: u32) -> Result<(), FsError> {
        let mode = calls::mode(permissions);
        self.call("fchmod", move |file| rustix::fs::fchmod(file, mode))
            .await
    }

    async fn chown(&self, uid: u32, gid: u32) -> Result<(), FsError> {
        let (uid, gid) = owner(uid, gid);
        self.call("fchown", move |file| rustix::fs::fchown(file, uid, gid))
            .await
    }

    async fn utimes(&self, accessed: SystemTime, modified: SystemTime) -> Result<(), FsError> {
        let times = calls::timestamps(accessed, modified);
        self.call("futime", move |file| rustix::fs::futimens(file, &times))
            .await
    }

    async fn sync(&self) -> Result<(), FsError> {
        self.call("fsync", |file| rustix::fs::fsync(file)).await
    }

    async fn close(self: Box<Self>) -> Result<(), FsError> {
        Ok(())
    }
}

/// As for the kernel, -1 leaves an id as it is.
pub(super) fn owner(uid: u32, gid: u32) -> (Option<Uid>, Option<Gid>) {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    (given(uid).map(Uid::from_raw), given(gid).map(Gid::from_raw))
}

fn write_all(file: &OwnedFd, mut offset: u64, mut data: &[u8]) -> Answer<()> {
    while !data.is_empty() {
        let written = match rustix::io::pwrite(file.as_fd(), data, offset) {
            Err(Errno::SPIPE) => rustix::io::write(file, data),
            other => other,
        };
        let count = match written {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        data = &data[count..];
        offset = offset.saturating_add(count as u64);
    }
    Ok(())
}
