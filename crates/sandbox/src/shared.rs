//! A host directory as the workspace: its size cannot be fixed beforehand, so it is watched.
//!
//! The cheap look, at the free room of its file system, is taken often; but others write to that file system and delete from
//! it too, so it only gives reason for the thorough one, which sums up the directory's files that changed since the start.
//! That one is taken now and then in any case. What it cannot see (too deep, or deleted but open) is judged by the free room
//! alone, with a margin.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

/// How often the cheap look is taken.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the thorough look is taken without a reason, and how much longer than it takes itself the pause is.
const THOROUGH_EVERY: Duration = Duration::from_secs(2);
const PAUSE_PER_LOOK: u32 = 20;
/// Room lost that no look at the files explains, as a multiple of what is allowed.
const MARGIN: u64 = 4;
/// Directories open at once in the second look.
const DEEPEST: usize = 128;
/// What `st_blocks` counts in.
const BLOCK_BYTES: u64 = 512;

/// A directory, and how much room its file system had at the start.
#[derive(Debug)]
pub(crate) struct Watch {
    path: PathBuf,
    limit_bytes: u64,
    free_at_start: u64,
    since_unix_s: i64,
    next_thorough: Mutex<Instant>,
}

impl Watch {
    pub(crate) fn start(path: PathBuf, limit_bytes: u64) -> io::Result<Self> {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(io::Error::other)?;
        let free_at_start = free(&path)?;
        let since_unix_s = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let next_thorough = Mutex::new(Instant::now() + THOROUGH_EVERY);
        Ok(Self {
            path,
            limit_bytes,
            free_at_start,
            since_unix_s,
            next_thorough,
        })
    }

    pub(crate) const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// The cheap look: whether a thorough one is due.
    pub(crate) fn is_due(&self) -> bool {
        self.lost() > self.limit_bytes || Instant::now() >= *self.next()
    }

    fn next(&self) -> MutexGuard<'_, Instant> {
        self.next_thorough
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> u64 {
        free(&self.path).map_or(0, |now| self.free_at_start.saturating_sub(now))
    }

    /// The thorough look, which blocks: how much was added, where that is more than allowed.
    pub(crate) fn over(&self) -> Option<u64> {
        let began = Instant::now();
        let lost = self.lost();
        let mut seen = Added {
            since_unix_s: self.since_unix_s,
            bytes: 0,
            is_partial: false,
        };
        if let Ok(root) = open_dir(rustix::fs::CWD, self.path.as_os_str()) {
            seen.add(root, 0);
        }
        let pause = began
            .elapsed()
            .saturating_mul(PAUSE_PER_LOOK)
            .max(THOROUGH_EVERY);
        *self.next() = Instant::now() + pause;
        let proven = seen.bytes > self.limit_bytes;
        let unexplained = lost > self.limit_bytes.saturating_mul(MARGIN)
            || seen.is_partial && lost > self.limit_bytes;
        (proven || unexplained).then_some(if proven { seen.bytes } else { lost })
    }
}

fn free(path: &std::path::Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bfree.saturating_mul(stat.f_frsize))
}

/// Links are never followed: the directory is the agent's, and its links may point anywhere.
fn open_dir(
    dir: impl std::os::fd::AsFd,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

struct Added {
    since_unix_s: i64,
    bytes: u64,
    is_partial: bool,
}

impl Added {
    fn add(&mut self, dir: OwnedFd, depth: usize) {
        let Ok(entries) = Dir::read_from(&dir) else {
            self.is_partial = true;
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name != c"." && name != c".." {
                self.add_one(&dir, name, depth);
            }
        }
    }

    fn add_one(&mut self, dir: &OwnedFd, name: &CStr, depth: usize) {
        let Ok(stat) = rustix::fs::statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else {
            return;
        };
        // Nobody can set a file's time of change, and the agent cannot set the clock.
        if stat.st_ctime >= self.since_unix_s {
            let bytes = u64::try_from(stat.st_blocks)
                .unwrap_or(0)
                .saturating_mul(BLOCK_BYTES);
            self.bytes = self.bytes.saturating_add(bytes);
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return;
        }
        match (depth < DEEPEST, open_dir(dir.as_fd(), name)) {
            (true, Ok(below)) => self.add(below, depth + 1),
            _ => self.is_partial = true,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    /// R4: what was there before does not count, what is new does.
    #[test]
    fn r4_only_what_is_added_counts() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("old"), vec![1; 1 << 20]).unwrap();
        let future = i64::MAX;
        let mut watch = Watch::start(dir.path().to_owned(), 64 << 10).unwrap();
        let since = std::mem::replace(&mut watch.since_unix_s, future);
        assert_eq!(watch.over(), None);
        watch.since_unix_s = since;
        std::fs::create_dir(dir.path().join("below")).unwrap();
        std::fs::write(dir.path().join("below/new"), vec![1; 1 << 20]).unwrap();
        assert!(watch.over().unwrap() >= 1 << 20);
    }
}
