//! Which pages a call touches: found out once by a rehearsal, and made each process's own before it says `Ready`.
//!
//! A fork copies no memory: each page is copied when the process first writes to it, by a fault of its own. A call of a plugin
//! has some two hundred of those, and its caller waits for them. So the zygote lets one process serve a call of its own
//! making, asks the kernel which pages that one had to itself at the end, and from then on every process has these copied
//! in a few calls while nobody waits yet. A page too many or too few changes nothing but time.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
    os::fd::OwnedFd,
};

use bulkhead_init::sys::exit_now;
use rustix::{
    net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, waitpid},
};

use crate::{
    guest::{Guest, Pipe},
    sys::{self, Forked},
};

const PAGE: usize = 4096;
/// Beyond these the page is not worth the call, and something is odd.
const RANGES_MAX: usize = 1024;
/// Of an entry in `/proc/self/pagemap`: the page is there, and nobody else maps it.
const PRESENT: u64 = 1 << 63;
const EXCLUSIVE: u64 = 1 << 56;

/// What a call does with pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Of a file, code mostly: a fork does not copy what it knows of those either.
    Read,
    Write,
}

/// The pages that a call touches and a fresh fork does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pages(Vec<(Access, Range<usize>)>);

impl Pages {
    /// Makes them this process's own. A kernel that cannot do so at once does so later, one by one.
    pub(crate) fn touch(&self) {
        for (access, range) in &self.0 {
            if sys::populate(range, *access).is_err() {
                return;
            }
        }
    }
}

/// Lets a fork of this process serve `frames`. Where that teaches nothing, calls are slower and nothing else.
pub(crate) fn rehearse(guest: Box<dyn Guest>) -> (Box<dyn Guest>, Pages) {
    let Some(frames) = guest.rehearsal() else {
        return (guest, Pages::default());
    };
    let Ok(stage) = Stage::new(&frames) else {
        return (guest, Pages::default());
    };
    match sys::fork() {
        Err(_) => (guest, Pages::default()),
        Ok(Forked::Child) => {
            // Whatever fails here, the zygote reads fewer pages.
            let _ = stage.play(guest);
            exit_now(0);
        }
        Ok(Forked::Parent { pid, .. }) => {
            let pages = stage.watch(pid).unwrap_or_default();
            (guest, pages)
        }
    }
}

struct Stage {
    /// The broker's end, with all that it will ever say said.
    broker: OwnedFd,
    stream: OwnedFd,
    last_words: OwnedFd,
    /// By which the process says what it touched.
    said: File,
    saying: File,
}

impl Stage {
    fn new(frames: &[u8]) -> io::Result<Self> {
        let (broker, stream) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // They fit into what the socket holds, or the rehearsal is cut short.
        rustix::io::ioctl_fionbio(&broker, true)?;
        rustix::io::write(&broker, frames)?;
        shutdown(&broker, Shutdown::Write)?;
        let (said, saying) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self {
            broker,
            last_words: stream.try_clone()?,
            stream,
            said: said.into(),
            saying: saying.into(),
        })
    }

    /// In the forked process.
    fn play(self, guest: Box<dyn Guest>) -> io::Result<()> {
        let before = private(&fs::read_to_string("/proc/self/maps")?);
        guest.serve(Pipe {
            stream: self.stream,
            last_words: self.last_words,
        });
        let mut entries = File::open("/proc/self/pagemap")?;
        let mut bytes = Vec::new();
        for (access, mapping) in before {
            for range in touched(&mut entries, access, &mapping)? {
                // A page's address has room for one bit more.
                let start = range.start | usize::from(access == Access::Write);
                bytes.extend(start.to_le_bytes());
                bytes.extend(range.end.to_le_bytes());
            }
        }
        let mut saying = self.saying;
        saying.write_all(&bytes)
    }

    /// In the zygote.
    fn watch(self, pid: u32) -> io::Result<Pages> {
        drop((self.saying, self.stream, self.last_words));
        let mut bytes = Vec::new();
        let read = self
            .said
            .take((RANGES_MAX * 2 * size_of::<usize>()) as u64)
            .read_to_end(&mut bytes);
        drop(self.broker);
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        rustix::io::retry_on_intr(|| waitpid(pid, WaitOptions::empty()))?;
        read?;
        let (numbers, _) = bytes.as_chunks::<{ size_of::<usize>() }>();
        let (pairs, _) = numbers.as_chunks::<2>();
        let range = |[start, end]: &[[u8; size_of::<usize>()]; 2]| {
            let start = usize::from_le_bytes(*start);
            let access = match start & 1 {
                0 => Access::Read,
                _ => Access::Write,
            };
            (access, (start & !1)..usize::from_le_bytes(*end))
        };
        Ok(Pages(pairs.iter().map(range).collect()))
    }
}

/// The private mappings in the text of `/proc/self/maps`: the writable ones, and those of files.
fn private(maps: &str) -> Vec<(Access, Range<usize>)> {
    let range = |line: &str| {
        let mut columns = line.split_whitespace();
        let (start, end) = columns.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let range = number(start)?..number(end)?;
        match columns.next()? {
            "rw-p" => Some((Access::Write, range)),
            "r--p" | "r-xp" if columns.nth(3)?.starts_with('/') => Some((Access::Read, range)),
            _ => None,
        }
    };
    maps.lines().filter_map(range).collect()
}

/// The pages of a mapping that are there, of a writable one those that no other process maps; neighbours together.
fn touched(
    entries: &mut File,
    access: Access,
    mapping: &Range<usize>,
) -> io::Result<Vec<Range<usize>>> {
    let wanted = match access {
        Access::Read => PRESENT,
        Access::Write => PRESENT | EXCLUSIVE,
    };
    let mut bytes = vec![0; (mapping.end - mapping.start) / PAGE * 8];
    entries.seek(SeekFrom::Start((mapping.start / PAGE * 8) as u64))?;
    entries.read_exact(&mut bytes)?;
    let (entries, _) = bytes.as_chunks::<8>();
    let mut found: Vec<Range<usize>> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if u64::from_le_bytes(*entry) & wanted != wanted {
            continue;
        }
        let start = mapping.start + index * PAGE;
        match found.last_mut() {
            Some(last) if last.end == start => last.end += PAGE,
            _ => found.push(start..start + PAGE),
        }
    }
    Ok(found)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;

    /// D8: what this process alone has is found, and what is not there is not.
    #[test]
    fn d8_pages_that_are_a_processs_own_are_found() {
        let mut memory = vec![0_u8; 64 * PAGE];
        let start = memory.as_ptr().addr().next_multiple_of(PAGE);
        let offset = start - memory.as_ptr().addr();
        for page in [3, 4, 9] {
            memory[offset + page * PAGE] = 1;
        }
        std::hint::black_box(&memory);
        let mut entries = File::open("/proc/self/pagemap").unwrap();
        let found = touched(&mut entries, Access::Write, &(start..start + 32 * PAGE)).unwrap();
        let at = |page: usize| start + page * PAGE;
        assert_eq!(found, [at(3)..at(5), at(9)..at(10)]);
    }

    #[test]
    fn only_private_mappings_are_looked_at() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 [heap]\n3000-4000 r--p 0 0:0 0\n5000-6000 rw-s 0 0:0 0\n\
                    7000-8000 r-xp 00001000 fe:00 12   /lib/a.so\n9000-a000 r-xp 0 00:00 0 [vdso]\n";
        let expected = [
            (Access::Write, 0x1000..0x3000),
            (Access::Read, 0x7000..0x8000),
        ];
        assert_eq!(private(maps), expected);
    }
}
