//! `rm`, from steps that every provider has.

use std::{path::Path, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use rustix::io::Errno;

use super::{Entry, FileKind, FileSystem, FsError, Refusal, lexical, options::RmOptions};

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

/// Names of one directory, other than directories, that are removed at the same time, so that a far host's distance is not
/// paid for each.
const AT_ONCE: usize = 32;
/// Directories of one directory that are removed at the same time: in the first one, in each below it, and further down.
/// Their product bounds a whole tree.
const DIRECTORIES_AT_ONCE: [usize; 3] = [8, 4, 1];

/// What its directory's listing says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// Only a look at it would tell.
    Unknown,
    /// No directory, or was not one a moment ago.
    Plain,
}

/// How many directories above it are being removed too.
#[derive(Debug, Clone, Copy)]
struct Below(usize);

impl Below {
    fn directories_at_once(self) -> usize {
        DIRECTORIES_AT_ONCE.get(self.0).copied().unwrap_or(1)
    }
}

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
        self.remove(path, Looks::Unknown, Below(0), options).await
    }

    /// One name, again where that may help. That it is gone already is no error.
    fn remove<'a>(
        &'a self,
        path: &'a Path,
        looks: Looks,
        below: Below,
        options: RmOptions,
    ) -> BoxFuture<'a, Result<(), FsError>> {
        async move {
            let mut retries = 0;
            loop {
                let error = match self.remove_once(path, looks, below, options).await {
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

    async fn remove_once(
        &self,
        path: &Path,
        looks: Looks,
        below: Below,
        options: RmOptions,
    ) -> Result<(), FsError> {
        if looks == Looks::Unknown && self.lstat(path).await.is_ok_and(|stat| stat.is_directory()) {
            return self.remove_directory(path, below, options, None).await;
        }
        match self.unlink(path).await {
            // Some systems say so of a directory.
            Err(error) if error.is(Errno::ISDIR) || error.is(Errno::PERM) => {
                self.remove_directory(path, below, options, Some(error))
                    .await
            }
            other => other,
        }
    }

    /// `instead` is what is said where it turns out to be no directory.
    async fn remove_directory(
        &self,
        path: &Path,
        below: Below,
        options: RmOptions,
        instead: Option<FsError>,
    ) -> Result<(), FsError> {
        match self.rmdir(path).await {
            Err(error) if HOLDS_SOMETHING.iter().any(|errno| error.is(*errno)) => {}
            Err(error) if error.is(Errno::NOTDIR) => return instead.map_or(Ok(()), Err),
            other => return other,
        }
        self.remove_entries(path, below, options).await?;
        self.rmdir(path).await
    }

    /// As in Node, one that cannot be removed does not keep its neighbours.
    async fn remove_entries(
        &self,
        path: &Path,
        below: Below,
        options: RmOptions,
    ) -> Result<(), FsError> {
        let entries = self.entries(path).await?;
        let (plain, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_plain);
        let all = async |entries: Vec<Entry>, looks: Looks, at_once: usize| {
            futures::stream::iter(entries)
                .map(|entry| async move {
                    let child = lexical::child(path, &entry.name);
                    let below = Below(below.0 + 1);
                    self.remove(&child, looks, below, options).await
                })
                .buffered(at_once)
                .fold(Ok(()), async |first: Result<(), FsError>, removed| {
                    first.and(removed)
                })
                .await
        };
        let first = all(plain, Looks::Plain, AT_ONCE).await;
        first.and(all(others, Looks::Unknown, below.directories_at_once()).await)
    }
}

const fn is_plain(entry: &Entry) -> bool {
    !matches!(entry.kind, FileKind::Directory | FileKind::Unknown)
}

fn delay(options: RmOptions, retries: u32) -> Duration {
    options.retry_delay.saturating_mul(retries)
}
