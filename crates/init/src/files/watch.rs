//! Changes of a file or of a directory's names, by inotify.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
};

use super::answer::{Answer, put_string};
use crate::sys::{self, check, owned};

const MASK: u32 = libc::IN_ATTRIB
    | libc::IN_CREATE
    | libc::IN_MODIFY
    | libc::IN_DELETE
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO;
/// Those that leave the names as they are.
const CONTENT: u32 = libc::IN_ATTRIB | libc::IN_MODIFY;
/// The fixed part of the kernel's record: watch, mask, cookie, length of the name.
const HEAD: usize = 16;
const BUFFER: usize = 64 << 10;

pub(super) struct Watch {
    events: OwnedFd,
    /// The last name of the watched path, which events without a name are about.
    name: Vec<u8>,
    /// The request that waits for changes.
    asked: Option<u32>,
}

impl Watch {
    pub(super) fn new(path: &CString) -> io::Result<Self> {
        // SAFETY: takes flags only.
        let events = owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        // SAFETY: the path is a C string that outlives the call.
        check(unsafe { libc::inotify_add_watch(events.as_raw_fd(), path.as_ptr(), MASK) })?;
        Ok(Self {
            events,
            name: last_name(path),
            asked: None,
        })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.events.as_raw_fd()
    }

    pub(super) const fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    pub(super) fn into_asked(self) -> Option<u32> {
        self.asked
    }

    pub(super) fn ask(&mut self, id: u32) -> io::Result<()> {
        match self.asked.replace(id) {
            None => Ok(()),
            Some(before) => {
                self.asked = Some(before);
                Err(io::Error::from_raw_os_error(libc::EBUSY))
            }
        }
    }

    /// The answer for whoever waits, where there is something to tell.
    pub(super) fn take(&mut self) -> Option<(u32, Answer)> {
        let id = self.asked?;
        let mut buffer = vec![0; BUFFER];
        let read = sys::read(self.fd(), &mut buffer).ok()?;
        let body = self.told(&buffer[..read]);
        if body.is_empty() {
            return None;
        }
        self.asked = None;
        Some((id, Answer::Extended(body)))
    }

    fn told(&self, mut records: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        while let Some((head, rest)) = records.split_at_checked(HEAD) {
            let number = |at: usize| {
                let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
                u32::from_ne_bytes(bytes)
            };
            let mask = number(4);
            let length = usize::try_from(number(12)).unwrap_or(usize::MAX);
            let Some((name, rest)) = rest.split_at_checked(length) else {
                break;
            };
            records = rest;
            if mask & (MASK | libc::IN_Q_OVERFLOW) == 0 {
                continue;
            }
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(length);
            let name = if end == 0 {
                &self.name[..]
            } else {
                &name[..end]
            };
            let is_about_names = mask & !(CONTENT | libc::IN_ISDIR) != 0;
            body.push(u8::from(!is_about_names));
            put_string(&mut body, name);
        }
        body
    }
}

fn last_name(path: &CStr) -> Vec<u8> {
    let mut names = path.to_bytes().split(|byte| *byte == b'/').rev();
    names
        .find(|name| !name.is_empty())
        .unwrap_or_default()
        .to_vec()
}
