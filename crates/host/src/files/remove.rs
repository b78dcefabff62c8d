//! `rm`, from steps that every provider has.

use std::{path::Path, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use rustix::io::Errno;

use super::{FileSystem, FsError, Refusal, lexical, options::RmOptions};

/// What may be over when it is tried again.
const BUSY: [Errno; 5] = [
    Errno::BUSY,
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOTEMPTY,
    Errno::PERM,
];
/// How systems say that a directory still holds something.
const HOLDS_SOMETHING: [Errno; 3] = [Errno::NOTEMPTY, Errno::EXIST, Errno::PERM];

impl FileSystem {
    /// Removes a file, or with `recursive` a directory with all that is in it. Symbolic links are removed, never followed.
    pub async fn rm(&self, path: &Path, options: RmOptions) -> Result<(), FsError> {
        match self.lstat(path).await {
            Err(error) if options.force && error.is(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
            Ok(stat) if stat.is_directory() && !options.recursive => {
                let why = "is a directory";
                return Err(FsError::refused(Refusal::IsDirectory, "rm", path, why));
            }
            Ok(_) => {}
        }
        self.remove(path, options).await
    }

    /// One name, again where that may help. That it is gone already is no error.
    fn remove<'a>(
        &'a self,
        path: &'a Path,
        options: RmOptions,
    ) -> BoxFuture<'a, Result<(), FsError>> {
        async move {
            let mut retries = 0;
            loop {
                let error = match self.remove_once(path, options).await {
                    Err(error) if !error.is(Errno::NOENT) => error,
                    _ => return Ok(()),
                };
                let may_help = BUSY.iter().any(|errno| error.is(*errno));
                if !may_help || retries >= options.max_retries {
                    return Err(error);
                }
                retries += 1;
                tokio::time::sleep(delay(options, retries)).await;
            }
        }
        .boxed()
    }

    async fn remove_once(&self, path: &Path, options: RmOptions) -> Result<(), FsError> {
        if self.lstat(path).await.is_ok_and(|stat| stat.is_directory()) {
            return self.remove_directory(path, options, None).await;
        }
        match self.unlink(path).await {
            // Some systems say so of a directory.
            Err(error) if error.is(Errno::ISDIR) || error.is(Errno::PERM) => {
                self.remove_directory(path, options, Some(error)).await
            }
            other => other,
        }
    }

    /// `instead` is what is said where it turns out to be no directory.
    async fn remove_directory(
        &self,
        path: &Path,
        options: RmOptions,
        instead: Option<FsError>,
    ) -> Result<(), FsError> {
        match self.rmdir(path).await {
            Err(error) if HOLDS_SOMETHING.iter().any(|errno| error.is(*errno)) => {}
            Err(error) if error.is(Errno::NOTDIR) => return instead.map_or(Ok(()), Err),
            other => return other,
        }
        for entry in self.entries(path).await? {
            let child = lexical::child(path, &entry.name);
            self.remove(&child, options).await?;
        }
        self.rmdir(path).await
    }
}

fn delay(options: RmOptions, retries: u32) -> Duration {
    options.retry_delay.saturating_mul(retries)
}
