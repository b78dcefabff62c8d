//! Whole files: reading, writing, copying, cutting.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::io::Errno;

use super::{
    FileSystem, Follow, FsError, OpenFile,
    flags::Flags,
    lexical,
    options::{ReadStreamOptions, WriteOptions, WriteStreamOptions},
    stream::{Reading, WriteStream},
};
use crate::{OpenFlags, Stat};

/// The longest file that is returned as a whole, as in Node.
pub const READ_FILE_MAX_BYTES: u64 = (1 << 31) - 1;
/// The pieces in which whole files are moved.
const PIECE_BYTES: usize = 256 << 10;

/// Whether `copyFile` may replace a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    Yes,
    /// Node's `COPYFILE_EXCL`.
    No,
}

impl FileSystem {
    pub async fn read_file(&self, path: &Path) -> Result<Vec<u8>, FsError> {
        let file = self.provider().open(path, Flags::READ.open, 0).await?;
        let read = read_all(file, path).await;
        // Here Node names the path also where the open file failed.
        read.map_err(|error| error.at(path))
    }

    pub async fn write_file(
        &self,
        path: &Path,
        data: impl Into<Bytes> + Send,
        options: WriteOptions,
    ) -> Result<(), FsError> {
        let options = WriteStreamOptions {
            flags: options.flags,
            permissions: options.permissions,
            start: None,
            flush: options.flush,
        };
        let mut stream = self.create_write_stream(path, options).await?;
        stream.write(data.into()).await?;
        stream.finish().await.map(drop)
    }

    pub async fn append_file(
        &self,
        path: &Path,
        data: impl Into<Bytes> + Send,
    ) -> Result<(), FsError> {
        self.write_file(path, data, WriteOptions::APPEND).await
    }

    pub async fn truncate(&self, path: &Path, len: u64) -> Result<(), FsError> {
        let flags = Flags::READ_WRITE.open;
        let file = self.provider().open(path, flags, 0).await?;
        file.truncate(len).await?;
        file.close().await
    }

    /// Copies bytes and permissions. Where that fails in the middle, there is no destination afterwards.
    pub async fn copy_file(&self, from: &Path, to: &Path, replace: Replace) -> Result<(), FsError> {
        let copied = self.copy_steps(from, to, replace).await;
        copied.map_err(|error| error.during("copyfile").at(from).dest(to))
    }

    async fn copy_steps(&self, from: &Path, to: &Path, replace: Replace) -> Result<(), FsError> {
        let source = self.provider().open(from, Flags::READ.open, 0).await?;
        let stat = source.stat().await?;
        let flags = OpenFlags {
            write: true,
            create: true,
            exclusive: replace == Replace::No,
            ..OpenFlags::default()
        };
        let target = self.provider().open(to, flags, stat.permissions).await?;
        let other = target.stat().await?;
        if self
            .is_one_file((from, &stat), (to, &other), Follow::Yes)
            .await
        {
            return Ok(());
        }
        let copied = fill(source, &stat, target).await;
        if copied.is_err() {
            // The first failure is what counts.
            let _ = self.unlink(to).await;
        }
        copied
    }

    /// Whether two paths lead to one file. Where the provider knows no inodes it is asked where they lead: taking a file for
    /// another one would empty or remove it for its own copy.
    pub(super) async fn is_one_file(
        &self,
        one: (&Path, &Stat),
        other: (&Path, &Stat),
        follow: Follow,
    ) -> bool {
        if one.1.inode != 0 && other.1.inode != 0 {
            return one.1.is_same_file(other.1);
        }
        let real = (
            self.real(one.0, follow).await,
            self.real(other.0, follow).await,
        );
        matches!(real, (Ok(one), Ok(other)) if one == other)
    }

    /// Where a path leads, with or without the link at its end.
    async fn real(&self, path: &Path, follow: Follow) -> Result<PathBuf, FsError> {
        let plain = lexical::normal(path);
        match (follow, plain.file_name()) {
            (Follow::No, Some(name)) => {
                let dir = self.realpath(&lexical::dirname(&plain)).await?;
                Ok(dir.join(name))
            }
            _ => self.realpath(path).await,
        }
    }
}

async fn read_all(file: Box<dyn OpenFile>, path: &Path) -> Result<Vec<u8>, FsError> {
    let mut reading = Reading::new(file, pieces()).await?;
    let mut all = Vec::new();
    while let Some(piece) = reading.next().await? {
        if all.len() as u64 + piece.len() as u64 > READ_FILE_MAX_BYTES {
            let error = FsError::new(Errno::FBIG, "read", path);
            return Err(error.detail("read it as a stream"));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

async fn fill(
    source: Box<dyn OpenFile>,
    stat: &Stat,
    target: Box<dyn OpenFile>,
) -> Result<(), FsError> {
    target.truncate(0).await?;
    target.chmod(stat.permissions).await?;
    let mut reading = Reading::new(source, pieces()).await?;
    let mut writing = WriteStream::new(target, WriteStreamOptions::default()).await?;
    while let Some(piece) = reading.next().await? {
        writing.write(piece).await?;
    }
    writing.finish().await.map(drop)
}

const fn pieces() -> ReadStreamOptions {
    ReadStreamOptions {
        start: None,
        end: None,
        high_water_mark_bytes: PIECE_BYTES,
    }
}
