//! What a server says of a file, as [`Stat`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::wire::{Attributes, Decoder, Malformed};
use crate::{FileKind, Stat};

/// What is assumed where the server does not say it.
const BLOCK_SIZE: u64 = 4096;
/// The unit of `st_blocks`.
const SECTOR: u64 = 512;

pub(super) const fn kind(mode: u32) -> FileKind {
    match mode & 0o170_000 {
        0o100_000 => FileKind::File,
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Symlink,
        0o010_000 => FileKind::Fifo,
        0o140_000 => FileKind::Socket,
        0o020_000 => FileKind::CharacterDevice,
        0o060_000 => FileKind::BlockDevice,
        _ => FileKind::Unknown,
    }
}

/// Version 3 has no inode, device or count of links, and whole seconds only.
pub(super) fn plain(attributes: &Attributes) -> Stat {
    let mode = attributes.mode.unwrap_or(0);
    let size = attributes.size.unwrap_or(0);
    let (uid, gid) = attributes.owner.unwrap_or((0, 0));
    let (accessed, modified) = attributes.times.unwrap_or((0, 0));
    let time = |seconds: u32| UNIX_EPOCH + Duration::from_secs(seconds.into());
    Stat {
        kind: kind(mode),
        permissions: mode & 0o7777,
        size,
        uid,
        gid,
        accessed: time(accessed),
        modified: time(modified),
        changed: time(modified),
        born: None,
        device: 0,
        inode: 0,
        links: 1,
        special_device: 0,
        block_size: BLOCK_SIZE,
        blocks: size.div_ceil(SECTOR),
    }
}

/// The answer of our own server's `stat@bulkhead`.
pub(super) fn whole(from: &mut Decoder) -> Result<Stat, Malformed> {
    let mode = from.u32()?;
    let (uid, gid) = (from.u32()?, from.u32()?);
    let size = from.u64()?;
    let (accessed, modified, changed) = (time(from)?, time(from)?, time(from)?);
    let has_birth = from.u32()? != 0;
    let born = time(from)?;
    Ok(Stat {
        kind: kind(mode),
        permissions: mode & 0o7777,
        size,
        uid,
        gid,
        accessed,
        modified,
        changed,
        born: has_birth.then_some(born),
        device: from.u64()?,
        inode: from.u64()?,
        links: from.u64()?,
        special_device: from.u64()?,
        block_size: from.u64()?,
        blocks: from.u64()?,
    })
}

fn time(from: &mut Decoder) -> Result<SystemTime, Malformed> {
    let (seconds, nanoseconds) = (from.i64()?, from.u32()?);
    let part = Duration::from_nanos(nanoseconds.into());
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let at = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    at.and_then(|at| at.checked_add(part)).ok_or(Malformed)
}

/// Seconds and nanoseconds since 1970, the nanoseconds counted upwards from the second.
pub(super) fn since_epoch(at: SystemTime) -> (i64, u32) {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => (seconds(after), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-seconds(before), 0),
                part => (-seconds(before) - 1, 1_000_000_000 - part),
            }
        }
    }
}

/// A time as version 3 has it: seconds from 1970 to 2106, the nearest one where it lies outside.
pub(super) fn seconds(at: SystemTime) -> u32 {
    let (seconds, _) = since_epoch(at);
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_their_nanoseconds_upwards() {
        let before = |nanos| UNIX_EPOCH - Duration::from_nanos(nanos);
        assert_eq!(since_epoch(before(1_500_000_000)), (-2, 500_000_000));
        assert_eq!(since_epoch(before(1_000_000_000)), (-1, 0));
        assert_eq!(since_epoch(UNIX_EPOCH + Duration::from_nanos(7)), (0, 7));
        assert_eq!(seconds(before(1)), 0);
    }
}
