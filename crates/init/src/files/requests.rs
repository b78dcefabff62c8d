//! Each request and what it does.

use std::{
    ffi::{CStr, CString, OsStr},
    fs, io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

use super::{
    CHUNK_MAX, Handle, Server,
    answer::{Answer, errno, put_u64},
    calls::{self, At},
    packet::{Attributes, Fields, malformed},
    watch::Watch,
};
use crate::sys::check;

/// Names in one answer; with the longest names far below what a client takes.
const NAMES_AT_ONCE: usize = 500;
const MODE_OF_NEW_FILES: u32 = 0o666;
const MODE_OF_NEW_DIRECTORIES: u32 = 0o777;

impl Server {
    /// Performs one request. Only a malformed one is an error.
    pub(super) fn perform(&mut self, packet: &[u8]) -> io::Result<()> {
        let mut fields = Fields(packet);
        let kind = fields.u8()?;
        let id = fields.u32()?;
        if kind == 1 {
            self.answer(id, &Answer::Version);
            return Ok(());
        }
        let answer = match self.dispatch(kind, id, &mut fields) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBADMSG) => return Err(error),
            Err(error) => Answer::Failed(errno(&error)),
        };
        self.answer(id, &answer);
        Ok(())
    }

    /// None where the answer comes later.
    fn dispatch(
        &mut self,
        kind: u8,
        id: u32,
        fields: &mut Fields<'_>,
    ) -> io::Result<Option<Answer>> {
        let answer = match kind {
            3 => self.open(fields)?,
            4 => self.close(fields.handle()?),
            5 => self.read(fields)?,
            6 => self.write(fields)?,
            7 => Answer::Stat(calls::stat(
                libc::AT_FDCWD,
                &fields.path()?,
                libc::AT_SYMLINK_NOFOLLOW,
            )?),
            8 => Answer::Stat(self.stat_of_file(fields)?),
            9 => set(At::Path(&fields.path()?), fields)?,
            10 => set(At::File(self.file(fields.handle()?)?), fields)?,
            11 => {
                let path = fields.path()?;
                let listed = fs::read_dir(OsStr::from_bytes(path.as_bytes()))?;
                Answer::Handle(self.keep(Handle::Directory(listed))?)
            }
            12 => self.list(fields.handle()?)?,
            13 => one_path(fields, |path| {
                // SAFETY: the path is a C string that outlives the call.
                unsafe { libc::unlink(path.as_ptr()) }
            })?,
            14 => {
                let path = fields.path()?;
                let mode = fields
                    .attributes()?
                    .permissions
                    .unwrap_or(MODE_OF_NEW_DIRECTORIES);
                // SAFETY: as above.
                done(unsafe { libc::mkdir(path.as_ptr(), mode) })?
            }
            15 => one_path(fields, |path| {
                // SAFETY: as above.
                unsafe { libc::rmdir(path.as_ptr()) }
            })?,
            16 => {
                let path = fields.path()?;
                let real = fs::canonicalize(OsStr::from_bytes(path.as_bytes()))?;
                Answer::Names(vec![(real.into_os_string().into_vec(), 0)])
            }
            17 => Answer::Stat(calls::stat(libc::AT_FDCWD, &fields.path()?, 0)?),
            19 => {
                let path = fields.path()?;
                let target = fs::read_link(OsStr::from_bytes(path.as_bytes()))?;
                Answer::Names(vec![(target.into_os_string().into_vec(), 0)])
            }
            20 => two_paths(fields, |target, path| {
                // SAFETY: both paths are C strings that outlive the call.
                unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) }
            })?,
            200 => return self.extended(id, fields),
            _ => Answer::Failed(libc::ENOSYS),
        };
        Ok(Some(answer))
    }

    fn extended(&mut self, id: u32, fields: &mut Fields<'_>) -> io::Result<Option<Answer>> {
        let answer = match fields.string()? {
            b"posix-rename@openssh.com" => two_paths(fields, |from, to| {
                // SAFETY: both paths are C strings that outlive the call.
                unsafe { libc::rename(from.as_ptr(), to.as_ptr()) }
            })?,
            b"hardlink@openssh.com" => two_paths(fields, |existing, new| {
                // SAFETY: as above.
                unsafe { libc::link(existing.as_ptr(), new.as_ptr()) }
            })?,
            b"fsync@openssh.com" => {
                let fd = self.file(fields.handle()?)?;
                // SAFETY: takes a number only.
                done(unsafe { libc::fsync(fd) })?
            }
            b"lsetstat@openssh.com" => set(At::Link(&fields.path()?), fields)?,
            b"limits@openssh.com" => limits(),
            b"stat@bulkhead" => {
                let path = fields.path()?;
                let flags = if fields.u32()? == 0 {
                    libc::AT_SYMLINK_NOFOLLOW
                } else {
                    0
                };
                Answer::Whole(calls::stat(libc::AT_FDCWD, &path, flags)?)
            }
            b"fstat@bulkhead" => Answer::Whole(self.stat_of_file(fields)?),
            b"access@bulkhead" => {
                let path = fields.path()?;
                let mode = i32::try_from(fields.u32()? & 7).map_err(|_| malformed())?;
                // SAFETY: as above.
                done(unsafe { libc::access(path.as_ptr(), mode) })?
            }
            b"utimes@bulkhead" => {
                let path = fields.path()?;
                let at = if fields.u32()? == 0 {
                    At::Link(&path)
                } else {
                    At::Path(&path)
                };
                calls::utimes(at, &[fields.time()?, fields.time()?])?;
                Answer::Done
            }
            b"futimes@bulkhead" => {
                let at = At::File(self.file(fields.handle()?)?);
                calls::utimes(at, &[fields.time()?, fields.time()?])?;
                Answer::Done
            }
            b"watch@bulkhead" => {
                let watch = Watch::new(&fields.path()?)?;
                Answer::Handle(self.keep(Handle::Watch(watch))?)
            }
            b"changes@bulkhead" => return self.changes(id, fields.handle()?).map(|()| None),
            _ => Answer::Failed(libc::ENOSYS),
        };
        Ok(Some(answer))
    }

    fn open(&mut self, fields: &mut Fields<'_>) -> io::Result<Answer> {
        let (path, flags) = (fields.path()?, fields.u32()?);
        let mode = fields
            .attributes()?
            .permissions
            .unwrap_or(MODE_OF_NEW_FILES);
        let file = calls::open(&path, flags, mode & 0o7777)?;
        Ok(Answer::Handle(self.keep(Handle::File(file))?))
    }

    fn close(&mut self, handle: u32) -> Answer {
        match self.handles.remove(&handle) {
            Some(Handle::Watch(watch)) => {
                if let Some(id) = watch.into_asked() {
                    self.answer(id, &Answer::EndOfFile);
                }
                Answer::Done
            }
            Some(_) => Answer::Done,
            None => Answer::Failed(libc::EBADF),
        }
    }

    fn read(&self, fields: &mut Fields<'_>) -> io::Result<Answer> {
        let (handle, offset, length) = (fields.handle()?, fields.u64()?, fields.u32()?);
        let length = usize::try_from(length).unwrap_or(CHUNK_MAX).min(CHUNK_MAX);
        let mut data = vec![0; length];
        let read = calls::read_at(self.file(handle)?, &mut data, offset)?;
        data.truncate(read);
        Ok(if data.is_empty() && length > 0 {
            Answer::EndOfFile
        } else {
            Answer::Data(data)
        })
    }

    fn write(&self, fields: &mut Fields<'_>) -> io::Result<Answer> {
        let (handle, offset, data) = (fields.handle()?, fields.u64()?, fields.string()?);
        calls::write_at(self.file(handle)?, data, offset)?;
        Ok(Answer::Done)
    }

    fn stat_of_file(&self, fields: &mut Fields<'_>) -> io::Result<Box<libc::statx>> {
        let fd = self.file(fields.handle()?)?;
        calls::stat(fd, c"", libc::AT_EMPTY_PATH)
    }

    fn list(&mut self, handle: u32) -> io::Result<Answer> {
        let Some(Handle::Directory(listed)) = self.handles.get_mut(&handle) else {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        };
        let mut names = Vec::new();
        for entry in listed.by_ref().take(NAMES_AT_ONCE) {
            let entry = entry?;
            let mode = entry.file_type().map_or(0, mode_of);
            names.push((entry.file_name().into_vec(), mode));
        }
        Ok(if names.is_empty() {
            Answer::EndOfFile
        } else {
            Answer::Names(names)
        })
    }

    fn changes(&mut self, id: u32, handle: u32) -> io::Result<()> {
        match self.handles.get_mut(&handle) {
            Some(Handle::Watch(watch)) => watch.ask(id),
            _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }
}

fn done(value: i32) -> io::Result<Answer> {
    check(value).map(|_| Answer::Done)
}

fn one_path(fields: &mut Fields<'_>, call: impl Fn(&CStr) -> i32) -> io::Result<Answer> {
    done(call(&fields.path()?))
}

fn two_paths(
    fields: &mut Fields<'_>,
    call: impl Fn(&CString, &CString) -> i32,
) -> io::Result<Answer> {
    let (one, other) = (fields.path()?, fields.path()?);
    done(call(&one, &other))
}

fn set(at: At<'_>, fields: &mut Fields<'_>) -> io::Result<Answer> {
    let Attributes {
        size,
        owner,
        permissions,
        times,
    } = fields.attributes()?;
    if let Some(size) = size {
        calls::truncate(at, size)?;
    }
    if let Some((uid, gid)) = owner {
        calls::chown(at, uid, gid)?;
    }
    if let Some(permissions) = permissions {
        calls::chmod(at, permissions)?;
    }
    if let Some((accessed, modified)) = times {
        let time = |seconds: u32| libc::timespec {
            tv_sec: seconds.into(),
            tv_nsec: 0,
        };
        calls::utimes(at, &[time(accessed), time(modified)])?;
    }
    Ok(Answer::Done)
}

fn limits() -> Answer {
    let mut body = Vec::new();
    for limit in [super::PACKET_MAX, CHUNK_MAX, CHUNK_MAX, super::HANDLES_MAX] {
        put_u64(&mut body, limit as u64);
    }
    Answer::Extended(body)
}

fn mode_of(kind: fs::FileType) -> u32 {
    use std::os::unix::fs::FileTypeExt as _;
    if kind.is_file() {
        libc::S_IFREG
    } else if kind.is_dir() {
        libc::S_IFDIR
    } else if kind.is_symlink() {
        libc::S_IFLNK
    } else if kind.is_fifo() {
        libc::S_IFIFO
    } else if kind.is_socket() {
        libc::S_IFSOCK
    } else if kind.is_char_device() {
        libc::S_IFCHR
    } else if kind.is_block_device() {
        libc::S_IFBLK
    } else {
        0
    }
}
