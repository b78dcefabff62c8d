//! Writing answers.

use std::io;

/// What a request is answered with.
pub(super) enum Answer {
    Done,
    EndOfFile,
    Failed(i32),
    Version,
    Handle(u32),
    Data(Vec<u8>),
    /// Each name with its mode.
    Names(Vec<(Vec<u8>, u32)>),
    Stat(Box<libc::statx>),
    Whole(Box<libc::statx>),
    Extended(Vec<u8>),
}

/// Of an error that is not the kernel's own.
pub(super) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

const EXTENSIONS: [(&str, &str); 6] = [
    ("posix-rename@openssh.com", "1"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("errno@bulkhead", "1"),
];

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn string(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    fn status(&mut self, code: u32, errno: i32) {
        self.u32(code);
        self.string(b"");
        self.string(b"");
        self.u32(errno.unsigned_abs());
    }

    fn time(&mut self, time: &libc::statx_timestamp) {
        self.0.extend_from_slice(&time.tv_sec.to_be_bytes());
        self.u32(time.tv_nsec);
    }

    /// Size, owner, permissions and times, as version 3 has them.
    fn attributes(&mut self, stat: &libc::statx) {
        let seconds =
            |time: &libc::statx_timestamp| u32::try_from(time.tv_sec.max(0)).unwrap_or(u32::MAX);
        self.u32(0b1111);
        self.u64(stat.stx_size);
        self.u32(stat.stx_uid);
        self.u32(stat.stx_gid);
        self.u32(stat.stx_mode.into());
        self.u32(seconds(&stat.stx_atime));
        self.u32(seconds(&stat.stx_mtime));
    }

    fn whole(&mut self, stat: &libc::statx) {
        self.u32(stat.stx_mode.into());
        self.u32(stat.stx_uid);
        self.u32(stat.stx_gid);
        self.u64(stat.stx_size);
        for time in [&stat.stx_atime, &stat.stx_mtime, &stat.stx_ctime] {
            self.time(time);
        }
        self.u32(u32::from(stat.stx_mask & libc::STATX_BTIME != 0));
        self.time(&stat.stx_btime);
        self.u64(libc::makedev(stat.stx_dev_major, stat.stx_dev_minor));
        self.u64(stat.stx_ino);
        self.u64(stat.stx_nlink.into());
        self.u64(libc::makedev(stat.stx_rdev_major, stat.stx_rdev_minor));
        self.u64(stat.stx_blksize.into());
        self.u64(stat.stx_blocks);
    }
}

const fn code(errno: i32) -> u32 {
    match errno {
        libc::ENOENT => 2,
        libc::EACCES | libc::EPERM => 3,
        libc::ENOSYS => 8,
        _ => 4,
    }
}

impl Answer {
    pub(super) fn put(&self, id: u32, out: &mut Vec<u8>) {
        let start = out.len();
        let mut to = Writer(out);
        to.u32(0);
        to.u8(match self {
            Self::Version => 2,
            Self::Done | Self::EndOfFile | Self::Failed(_) => 101,
            Self::Handle(_) => 102,
            Self::Data(_) => 103,
            Self::Names(_) => 104,
            Self::Stat(_) => 105,
            Self::Whole(_) | Self::Extended(_) => 201,
        });
        to.u32(if matches!(self, Self::Version) { 3 } else { id });
        match self {
            Self::Done => to.status(0, 0),
            Self::EndOfFile => to.status(1, 0),
            Self::Failed(errno) => to.status(code(*errno), *errno),
            Self::Version => {
                for (name, value) in EXTENSIONS {
                    to.string(name.as_bytes());
                    to.string(value.as_bytes());
                }
            }
            Self::Handle(handle) => to.string(&handle.to_be_bytes()),
            Self::Data(data) => to.string(data),
            Self::Names(names) => {
                to.u32(u32::try_from(names.len()).unwrap_or(0));
                for (name, mode) in names {
                    to.string(name);
                    to.string(b"");
                    to.u32(4);
                    to.u32(*mode);
                }
            }
            Self::Stat(stat) => to.attributes(stat),
            Self::Whole(stat) => to.whole(stat),
            Self::Extended(body) => to.0.extend_from_slice(body),
        }
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// A string in the body of an extended answer.
pub(super) fn put_string(body: &mut Vec<u8>, bytes: &[u8]) {
    Writer(body).string(bytes);
}

pub(super) fn put_u64(body: &mut Vec<u8>, value: u64) {
    Writer(body).u64(value);
}
