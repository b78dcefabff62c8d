//! What files are in JavaScript: stats, entries, errors.

use std::time::{Duration, SystemTime};

use bulkhead_engine::{Thrown, Value};
use bulkhead_host::{Access, Dirent, FileKind, Flags, FsError, Stat};

use super::arguments::{name, path};

pub(super) fn flags(word: &str) -> Result<Flags, Thrown> {
    word.parse().map_err(|error: bulkhead_host::UnknownFlags| {
        Thrown::type_error(error.to_string()).with("code", "ERR_INVALID_ARG_VALUE".into())
    })
}

/// The bits of `access(2)`.
pub(super) const fn access(mode: u32) -> Access {
    Access {
        read: mode & 4 != 0,
        write: mode & 2 != 0,
        execute: mode & 1 != 0,
    }
}

fn kind(kind: FileKind) -> Value {
    let word = match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharacterDevice => "characterDevice",
        FileKind::BlockDevice => "blockDevice",
        FileKind::Unknown => "unknown",
    };
    word.into()
}

pub(super) fn entry(entry: &Dirent) -> Value {
    Value::List(vec![
        name(&entry.name),
        path(&entry.parent_path),
        kind(entry.kind),
    ])
}

pub(super) fn stat_value(stat: &Stat) -> Value {
    let born = stat.born.unwrap_or(stat.changed);
    Value::object([
        ("kind", kind(stat.kind)),
        ("permissions", Value::Number(stat.permissions.into())),
        ("uid", Value::Number(stat.uid.into())),
        ("gid", Value::Number(stat.gid.into())),
        ("size", whole(stat.size)),
        ("dev", whole(stat.device)),
        ("ino", whole(stat.inode)),
        ("nlink", whole(stat.links)),
        ("rdev", whole(stat.special_device)),
        ("blksize", whole(stat.block_size)),
        ("blocks", whole(stat.blocks)),
        ("atime", nanoseconds(stat.accessed)),
        ("mtime", nanoseconds(stat.modified)),
        ("ctime", nanoseconds(stat.changed)),
        ("birthtime", nanoseconds(born)),
    ])
}

/// An integer in full, for those who ask for `bigint`.
fn whole(value: u64) -> Value {
    Value::BigInt(i64::try_from(value).unwrap_or(i64::MAX))
}

fn nanoseconds(time: SystemTime) -> Value {
    let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    Value::BigInt(match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => nanos(after),
        Err(before) => -nanos(before.duration()),
    })
}

pub(super) fn of_file(error: FsError) -> Thrown {
    let mut thrown = Thrown::new(error.to_string())
        .with("errno", Value::Number(error.number().into()))
        .with("code", error.name().into())
        .with("syscall", error.syscall.into());
    for (name, path) in [("path", &error.path), ("dest", &error.dest)] {
        if let Some(path) = path {
            thrown = thrown.with(name, path.to_string_lossy().into_owned().into());
        }
    }
    thrown
}
