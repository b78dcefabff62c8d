//! An open file with a position, as Node's `FileHandle`.

use std::{fmt, time::SystemTime};

use bytes::{Bytes, BytesMut};
use rustix::io::Errno;
use tokio::sync::Mutex;

use super::{
    FileSystem, FsError, OpenFile, Stat,
    flags::{Flags, Sync},
    whole::READ_FILE_MAX_BYTES,
};

/// How much one step of reading a whole file asks for.
const STEP_BYTES: usize = 512 << 10;

/// An open file. Reads and writes without a position go on where the last one ended, one after the other; those with
/// a position leave it alone. Dropping the handle closes the file without saying how that went.
pub struct FileHandle {
    file: Box<dyn OpenFile>,
    flags: Flags,
    position: Mutex<u64>,
}

impl FileSystem {
    /// Opens a file; a new one gets the permissions.
    pub async fn open(
        &self,
        path: &std::path::Path,
        flags: impl Into<Flags>,
        permissions: u32,
    ) -> Result<FileHandle, FsError> {
        let flags = flags.into();
        let file = self.provider().open(path, flags.open, permissions).await?;
        Ok(FileHandle {
            file,
            flags,
            position: Mutex::new(0),
        })
    }
}

impl FileHandle {
    /// Up to `len` bytes; none is the end of the file.
    pub async fn read(&self, len: usize, position: Option<u64>) -> Result<Bytes, FsError> {
        if let Some(position) = position {
            return self.file.read_at(position, len).await;
        }
        let mut at = self.position.lock().await;
        let bytes = self.file.read_at(*at, len).await?;
        *at += bytes.len() as u64;
        Ok(bytes)
    }

    /// All of `data`; says how long that was. A file opened for appending gets it at its end, whatever the position.
    pub async fn write(&self, data: Bytes, position: Option<u64>) -> Result<usize, FsError> {
        let len = data.len();
        if let Some(position) = position {
            self.file.write_at(position, data).await?;
        } else {
            let mut at = self.position.lock().await;
            self.file.write_at(*at, data).await?;
            *at = if self.flags.open.append {
                self.file.stat().await?.size
            } else {
                *at + len as u64
            };
        }
        if self.flags.sync == Sync::EachWrite {
            self.file.sync().await?;
        }
        Ok(len)
    }

    /// The rest of the file, from the position on.
    pub async fn read_file(&self) -> Result<Vec<u8>, FsError> {
        let mut all = BytesMut::new();
        loop {
            let bytes = self.read(STEP_BYTES, None).await?;
            if bytes.is_empty() {
                return Ok(all.into());
            }
            if all.len() as u64 + bytes.len() as u64 > READ_FILE_MAX_BYTES {
                return Err(FsError::of_file(Errno::FBIG, "read"));
            }
            all.extend_from_slice(&bytes);
        }
    }

    /// Writes from the position on, and leaves what lies behind that.
    pub async fn write_file(&self, data: impl Into<Bytes> + Send) -> Result<(), FsError> {
        let data = data.into();
        if data.is_empty() {
            return Ok(());
        }
        self.write(data, None).await.map(drop)
    }

    /// The same as [`FileHandle::write_file`]: how the file was opened says where it is written.
    pub async fn append_file(&self, data: impl Into<Bytes> + Send) -> Result<(), FsError> {
        self.write_file(data).await
    }

    pub async fn stat(&self) -> Result<Stat, FsError> {
        self.file.stat().await
    }

    pub async fn truncate(&self, len: u64) -> Result<(), FsError> {
        self.file.truncate(len).await
    }

    pub async fn chmod(&self, permissions: u32) -> Result<(), FsError> {
        self.file.chmod(permissions).await
    }

    pub async fn chown(&self, uid: u32, gid: u32) -> Result<(), FsError> {
        self.file.chown(uid, gid).await
    }

    pub async fn utimes(&self, accessed: SystemTime, modified: SystemTime) -> Result<(), FsError> {
        self.file.utimes(accessed, modified).await
    }

    pub async fn sync(&self) -> Result<(), FsError> {
        self.file.sync().await
    }

    pub async fn datasync(&self) -> Result<(), FsError> {
        let synced = self.file.sync().await;
        synced.map_err(|error| error.during("fdatasync"))
    }

    pub async fn close(self) -> Result<(), FsError> {
        self.file.close().await
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileHandle")
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}
