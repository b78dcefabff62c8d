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

/// A file system has only so many files, too: as many may be added as an image of that size has, but never so few that an
/// ordinary checkout would not fit.
const BYTES_PER_FILE: u64 = 16 << 10;
const FEWEST_FILES: u64 = 50_000;

/// A directory, and how much room its file system had at the start.
#[derive(Debug)]
pub(crate) struct Watch {
    path: PathBuf,
    limit: Room,
    free_at_start: Room,
    since_unix_s: i64,
    next_thorough: Mutex<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Room {
    bytes: u64,
    files: u64,
}

/// What was added, and how much of that was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) added: u64,
    pub(crate) allowed: u64,
    pub(crate) unit: &'static str,
}

impl Over {
    fn found(is_over: bool, added: Room, allowed: Room) -> Option<Self> {
        let over = if added.bytes > allowed.bytes {
            Self {
                added: added.bytes,
                allowed: allowed.bytes,
                unit: "bytes",
            }
        } else {
            Self {
                added: added.files,
                allowed: allowed.files,
                unit: "files",
            }
        };
        is_over.then_some(over)
    }
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
            limit: Room {
                bytes: limit_bytes,
                files: (limit_bytes / BYTES_PER_FILE).max(FEWEST_FILES),
            },
            free_at_start,
            since_unix_s,
            next_thorough,
        })
    }

    /// The cheap look: whether a thorough one is due.
    pub(crate) fn is_due(&self) -> bool {
        self.lost().exceeds(self.limit) || Instant::now() >= *self.next()
    }

    fn next(&self) -> MutexGuard<'_, Instant> {
        self.next_thorough
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> Room {
        let before = self.free_at_start;
        free(&self.path).map_or_else(
            |_| Room::default(),
            |now| Room {
                bytes: before.bytes.saturating_sub(now.bytes),
                files: before.files.saturating_sub(now.files),
            },
        )
    }

    /// The thorough look, which blocks: what was added, where that is more than allowed.
    pub(crate) fn over(&self) -> Option<Over> {
        let began = Instant::now();
        let lost = self.lost();
        let mut seen = Added {
            since_unix_s: self.since_unix_s,
            room: Room::default(),
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
        let limit = self.limit;
        // Names of one file count each, so the file system must have lost files, too.
        seen.room.files = seen.room.files.min(lost.files.saturating_mul(2));
        let margin = if seen.is_partial { 1 } else { MARGIN };
        let unexplained = lost.exceeds(Room {
            bytes: limit.bytes.saturating_mul(margin),
            files: limit.files.saturating_mul(margin),
        });
        Over::found(seen.room.exceeds(limit), seen.room, limit)
            .or_else(|| Over::found(unexplained, lost, limit))
    }
}

impl Room {
    const fn exceeds(self, limit: Self) -> bool {
        self.bytes > limit.bytes || self.files > limit.files
    }
}

fn free(path: &std::path::Path) -> io::Result<Room> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(Room {
        bytes: stat.f_bfree.saturating_mul(stat.f_frsize),
        files: stat.f_ffree,
    })
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
    room: Room,
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
            self.room.bytes = self.room.bytes.saturating_add(bytes);
            self.room.files += 1;
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
        assert!(watch.over().unwrap().added >= 1 << 20);
    }
}
