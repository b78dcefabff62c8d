//! One log file with its index: blocking, used from threads that may block.
//!
//! The index has 16 bytes (sequence, offset) for about every 64 KiB of the log, so a reader finds its
//! place by halving. It is only ever a hint: the record that it points at is checked, and what comes
//! after the last entry is read through.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;

use super::format::{self, Body, Entry, HEADER, MAGIC, MAX_BODY, Marker, NewEntry};

const INDEX_EVERY: u64 = 64 << 10;
const INDEX_ENTRY: u64 = 16;
/// How much is read at once; more than the largest record.
const READ_AT_ONCE: usize = 256 << 10;
/// After a power cut at most this much of the end may be missing; after a crash of Bulkhead nothing is.
const SYNC_EVERY_MS: i64 = 5_000;

/// A log open for appending.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    /// None after it failed once: the log is complete without it.
    index: Option<File>,
    next_seq: u64,
    /// Everything before this is acknowledged.
    end: u64,
    indexed: u64,
    synced_at_ms: i64,
    /// A failed write may have left bytes after `end`.
    torn: bool,
    sealed: bool,
    buffer: Vec<u8>,
}

/// Where a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) next_seq: u64,
    pub(crate) offset: u64,
    pub(crate) sealed: bool,
}

impl LogFile {
    /// Opens a log for appending, made where it is not there. What a killed writer left unfinished
    /// after the last whole record is cut off.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = private(path)?;
        let size = file.metadata()?.len();
        if size < MAGIC.len() as u64 {
            file.set_len(0)?;
            file.write_all_at(MAGIC, 0)?;
        }
        check_magic(&file)?;
        let end = find_end(&file, path)?;
        if size > end.offset {
            tracing::warn!(log = %path.display(), bytes = size - end.offset, "cutting off a torn end");
        }
        file.set_len(end.offset)?;
        let index = private(&index_path(path)).ok();
        let mut log = Self {
            path: path.to_owned(),
            file,
            index,
            next_seq: end.next_seq,
            end: end.offset,
            indexed: 0,
            synced_at_ms: 0,
            torn: false,
            sealed: end.sealed,
            buffer: Vec::new(),
        };
        log.trim_index();
        Ok(log)
    }

    pub(crate) const fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(crate) const fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Appends all entries or none, and returns the last sequence.
    pub(crate) fn append(&mut self, entries: &[NewEntry]) -> io::Result<u64> {
        if self.sealed {
            return Err(io::Error::other("the log is complete"));
        }
        self.mend()?;
        self.buffer.clear();
        for (seq, entry) in (self.next_seq..).zip(entries) {
            format::encode(seq, entry, &mut self.buffer)?;
        }
        if let Err(error) = self.file.write_all_at(&self.buffer, self.end) {
            self.torn = true;
            // Tried at once, so that readers do not see half a record for long; else before the next.
            let _ = self.mend();
            return Err(error);
        }
        let first = (self.next_seq, self.end);
        self.end += self.buffer.len() as u64;
        self.next_seq += entries.len() as u64;
        self.note_index(first);
        if let Some(last) = entries.last() {
            self.sealed = matches!(last.body, Body::Marker(Marker::End { .. }));
            self.sync(last.at_ms);
        }
        Ok(self.next_seq - 1)
    }

    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.end)?;
            self.torn = false;
        }
        Ok(())
    }

    /// The entries are in the file already, so a failure here is no reason to write them again.
    fn sync(&mut self, at_ms: i64) {
        if !self.sealed && at_ms - self.synced_at_ms < SYNC_EVERY_MS {
            return;
        }
        self.synced_at_ms = at_ms;
        if let Err(error) = self.file.sync_data() {
            tracing::warn!(log = %self.path.display(), %error, "a log is not safe from a power cut");
        }
    }

    /// Points at the record that was just written, where the last pointer is far behind.
    fn note_index(&mut self, (seq, offset): (u64, u64)) {
        if offset < self.indexed + INDEX_EVERY {
            return;
        }
        let Some(index) = &self.index else { return };
        let mut entry = seq.to_le_bytes().to_vec();
        entry.extend_from_slice(&offset.to_le_bytes());
        let written = index
            .metadata()
            .and_then(|meta| index.write_all_at(&entry, meta.len()));
        match written {
            Ok(()) => self.indexed = offset,
            Err(error) => {
                tracing::warn!(log = %self.path.display(), %error, "the log goes on without its index");
                self.index = None;
            }
        }
    }

    /// Drops what a killed writer left in the index: half an entry, or one for bytes that are gone.
    fn trim_index(&mut self) {
        let Some(index) = &self.index else { return };
        let Ok(mut entries) = index.metadata().map(|meta| meta.len() / INDEX_ENTRY) else {
            return;
        };
        while entries > 0 && index_entry(index, entries - 1).is_none_or(|(_, at)| at >= self.end) {
            entries -= 1;
        }
        self.indexed = match entries {
            0 => 0,
            some => index_entry(index, some - 1).map_or(0, |(_, at)| at),
        };
        if index.set_len(entries * INDEX_ENTRY).is_err() {
            self.index = None;
        }
    }
}

/// A file of another kind or version is refused, never cut.
fn check_magic(file: &File) -> io::Result<()> {
    let mut magic = [0; MAGIC.len()];
    file.read_exact_at(&mut magic, 0)?;
    if magic != *MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "this is not a log of this version of Bulkhead",
        ));
    }
    Ok(())
}

/// Entries from `from` on, at most about `max_bytes` of them but at least one where there is one.
pub(crate) fn read(path: &Path, from: u64, max_bytes: usize) -> io::Result<Vec<Entry>> {
    let file = File::open(path)?;
    let mut entries = Vec::new();
    let mut size = 0;
    let start = seek(&file, path, from);
    scan(&file, start, |entry, _| {
        if entry.seq >= from {
            size += entry.size();
            entries.push(entry);
        }
        size < max_bytes
    })?;
    Ok(entries)
}

/// Where the log ends, for one that is not open.
pub(crate) fn end(path: &Path) -> io::Result<End> {
    find_end(&File::open(path)?, path)
}

pub(crate) fn index_path(path: &Path) -> PathBuf {
    path.with_extension("idx")
}

fn find_end(file: &File, path: &Path) -> io::Result<End> {
    let (seq, offset) = seek(file, path, u64::MAX);
    let mut end = End {
        next_seq: seq,
        offset,
        sealed: false,
    };
    scan(file, (seq, offset), |entry, after| {
        end = End {
            next_seq: entry.seq + 1,
            offset: after,
            sealed: matches!(entry.body, Body::Marker(Marker::End { .. })),
        };
        true
    })?;
    Ok(end)
}

/// The best place to begin reading for a sequence: that of an index entry at or before it, where the
/// entry tells the truth, else the first record.
fn seek(file: &File, path: &Path, wanted: u64) -> (u64, u64) {
    let first = (1, MAGIC.len() as u64);
    let Ok(index) = File::open(index_path(path)) else {
        return first;
    };
    let entries = index.metadata().map_or(0, |meta| meta.len() / INDEX_ENTRY);
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low.midpoint(high);
        match index_entry(&index, middle) {
            Some((seq, _)) if seq <= wanted => low = middle + 1,
            _ => high = middle,
        }
    }
    let found = low.checked_sub(1).and_then(|at| index_entry(&index, at));
    found
        .filter(|place| is_record(file, *place))
        .unwrap_or(first)
}

fn index_entry(index: &File, at: u64) -> Option<(u64, u64)> {
    let mut entry = [0; 16];
    index.read_exact_at(&mut entry, at * INDEX_ENTRY).ok()?;
    let (seq, offset) = entry.split_at(8);
    Some((
        u64::from_le_bytes(seq.try_into().ok()?),
        u64::from_le_bytes(offset.try_into().ok()?),
    ))
}

fn is_record(file: &File, (seq, offset): (u64, u64)) -> bool {
    let read = read_at(file, offset, HEADER + MAX_BODY).unwrap_or_default();
    format::decode(&read).is_some_and(|(entry, _)| entry.seq == seq)
}

/// Calls `each` with every whole record from a place on, and where it ends, while that says to go on.
fn scan(
    file: &File,
    (mut seq, mut offset): (u64, u64),
    mut each: impl FnMut(Entry, u64) -> bool,
) -> io::Result<()> {
    let mut window = Bytes::new();
    loop {
        let Some((entry, len)) = format::decode(&window).filter(|(entry, _)| entry.seq == seq)
        else {
            let more = read_at(file, offset, READ_AT_ONCE)?;
            if more.len() <= window.len() {
                return Ok(());
            }
            window = more;
            continue;
        };
        window = window.slice(len..);
        offset += len as u64;
        seq += 1;
        if !each(entry, offset) {
            return Ok(());
        }
    }
}

/// Up to so many bytes, fewer at the end of the file.
fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes.into())
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}
