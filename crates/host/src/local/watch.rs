//! Watching a file or directory through inotify.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use rustix::{
    fs::inotify::{CreateFlags, ReadFlags, WatchFlags},
    io::{Errno, Result as Answer},
};
use tokio::{io::AsyncReadExt as _, net::unix::pipe::Receiver};

use crate::{Change, ChangeKind, FsError, Watcher};

/// Room for several events with the longest names.
const BUFFER: usize = 16 << 10;
/// The fixed part of an event: watch, mask, cookie, and how long the name is, 32 bits each.
const HEADER: usize = 16;

/// What libuv asks for, so that the same events come.
const WATCHED: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO);

pub(super) fn begin(path: &Path) -> Answer<OwnedFd> {
    let file = rustix::fs::inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    rustix::fs::inotify::add_watch(&file, path, WATCHED)?;
    Ok(file)
}

pub(super) struct LocalWatcher {
    events: Receiver,
    path: PathBuf,
    /// What events of the watched file itself are called.
    name: OsString,
    seen: VecDeque<Change>,
}

impl LocalWatcher {
    pub(super) fn new(file: OwnedFd, path: &Path, name: OsString) -> Result<Self, FsError> {
        // Events are read like the bytes of a pipe.
        let events = Receiver::from_owned_fd_unchecked(file).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            FsError::new(errno, "watch", path)
        })?;
        Ok(Self {
            events,
            path: path.to_owned(),
            name,
            seen: VecDeque::new(),
        })
    }

    /// Takes apart what one read gave: whole events, as the kernel promises.
    fn take(&mut self, mut bytes: &[u8]) {
        while let Some((header, rest)) = bytes.split_at_checked(HEADER) {
            let word = |at: usize| {
                let word = header[at..at + 4].try_into().unwrap_or_default();
                u32::from_ne_bytes(word)
            };
            let length = usize::try_from(word(12)).unwrap_or(0);
            let Some((name, rest)) = rest.split_at_checked(length) else {
                return;
            };
            bytes = rest;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            self.seen.extend(self.change(word(4), name));
        }
    }

    fn change(&self, mask: u32, name: &[u8]) -> Option<Change> {
        let mask = ReadFlags::from_bits_retain(mask);
        if mask.contains(ReadFlags::IGNORED) {
            return None;
        }
        let is_change = !mask
            .difference(ReadFlags::ATTRIB | ReadFlags::MODIFY | ReadFlags::ISDIR)
            .is_empty();
        let kind = if is_change {
            ChangeKind::Rename
        } else {
            ChangeKind::Change
        };
        let name = match name {
            [] => self.name.clone(),
            name => OsStr::from_bytes(name).to_owned(),
        };
        Some(Change { kind, name })
    }
}

#[async_trait]
impl Watcher for LocalWatcher {
    async fn next(&mut self) -> Option<Result<Change, FsError>> {
        let mut buffer = vec![0; BUFFER];
        loop {
            if let Some(change) = self.seen.pop_front() {
                return Some(Ok(change));
            }
            match self.events.read(&mut buffer).await {
                Ok(0) => return None,
                Ok(count) => self.take(&buffer[..count]),
                Err(error) => {
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    return Some(Err(FsError::new(errno, "watch", &self.path)));
                }
            }
        }
    }
}
