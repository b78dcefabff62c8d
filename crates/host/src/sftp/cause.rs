//! The true reason of a failure (H9).
//!
//! OpenSSH's server has three answers for most errors: `NO_SUCH_FILE` is `ENOENT`, `ENOTDIR`, `ELOOP` or `EBADF`;
//! `PERMISSION_DENIED` is `EACCES` or `EPERM`; `BAD_MESSAGE` is `EINVAL` or `ENAMETOOLONG`; everything else is `FAILURE`. What the
//! kernel had said is found by looking at the paths afterwards, in the order in which the kernel checks. Somebody who changes
//! them at the same time can make the answer wrong, never the operation. Our own server needs none of this.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::io::Errno;

use super::{
    provider::{path_bytes, to_path},
    session::{Lost, Session},
    stat,
    wire::{Attributes, Decoder, Reply, Request, Status, code, kind},
};
use crate::{FileKind, Follow, OpenFlags};

/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;
const NAME_BYTES_MAX: usize = 255;
const PATH_BYTES: usize = 4096;
/// The permission bit that keeps others from removing a file of a directory that they may write to.
const STICKY: u32 = 0o1000;
const WRITABLE_FOR_ALL: u32 = 0o002;
/// `f_flag` of a file system that is mounted read-only.
const READ_ONLY: u64 = 1;

/// What was tried.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tried<'a> {
    Open(&'a Path, OpenFlags),
    /// Anything that only looks.
    Look(&'a Path, Follow),
    List(&'a Path),
    MakeDirectory(&'a Path),
    RemoveDirectory(&'a Path),
    Unlink(&'a Path),
    Rename(&'a Path, &'a Path),
    Link(&'a Path, &'a Path),
    Symlink(&'a Path),
    ReadLink(&'a Path),
    /// Permissions, owner or times.
    Set(&'a Path, Follow),
    Read(&'a Bytes),
    Write(&'a Bytes),
    /// Anything else with an open file.
    Handle,
}

impl Session {
    /// The kernel's number for what the server answered. A conversation that ends meanwhile leaves the general one.
    pub(super) async fn cause(&self, tried: Tried<'_>, status: Status) -> Errno {
        if let Some(errno) = status.errno {
            return Errno::from_raw_os_error(errno);
        }
        let found = match status.code {
            code::NO_SUCH_FILE => self.missing(tried).await,
            code::PERMISSION_DENIED => self.denied(tried).await,
            code::BAD_MESSAGE => Ok(invalid(tried)),
            code::UNSUPPORTED => Ok(Errno::NOSYS),
            _ => self.failed(tried).await,
        };
        found.unwrap_or(Errno::IO)
    }

    async fn look(&self, path: &Path, follow: Follow) -> Result<Result<Attributes, u32>, Lost> {
        let kind = match follow {
            Follow::Yes => kind::STAT,
            Follow::No => kind::LSTAT,
        };
        let request = Request::new(kind).string(path_bytes(path));
        Ok(match self.ask(request).await? {
            Reply::Attributes(attributes) => Ok(attributes),
            Reply::Status(status) => Err(status.code),
            _ => Err(code::BAD_MESSAGE),
        })
    }

    async fn kind_of(&self, path: &Path, follow: Follow) -> Result<Option<FileKind>, Lost> {
        let found = self.look(path, follow).await?;
        Ok(found.ok().map(|found| stat::kind(found.mode.unwrap_or(0))))
    }

    async fn is_dir(&self, path: &Path) -> Result<bool, Lost> {
        Ok(self.kind_of(path, Follow::No).await? == Some(FileKind::Directory))
    }

    async fn exists(&self, path: &Path) -> Result<bool, Lost> {
        Ok(self.kind_of(path, Follow::No).await?.is_some())
    }

    /// `ENOENT`, `ENOTDIR`, `ELOOP`, and `EBADF` where there is no path.
    async fn missing(&self, tried: Tried<'_>) -> Result<Errno, Lost> {
        match tried {
            Tried::Read(_) | Tried::Write(_) | Tried::Handle => Ok(Errno::BADF),
            Tried::Open(path, flags) => {
                let follow = if flags.create && flags.exclusive {
                    Follow::No
                } else {
                    Follow::Yes
                };
                self.unreachable(path, follow).await
            }
            Tried::Look(path, follow) | Tried::Set(path, follow) => {
                self.unreachable(path, follow).await
            }
            Tried::List(path) => self.unreachable(path, Follow::Yes).await,
            Tried::Link(_, new)
                if ends_with_slash(new) && !self.exists(&without_slash(new)).await? =>
            {
                Ok(Errno::NOENT)
            }
            Tried::Rename(from, to) | Tried::Link(from, to) => self.missing_of_two(from, to).await,
            // A link is no directory, wherever it leads.
            Tried::RemoveDirectory(path) | Tried::Unlink(path)
                if ends_with_slash(path) && self.exists(&without_slash(path)).await? =>
            {
                Ok(Errno::NOTDIR)
            }
            Tried::MakeDirectory(path)
            | Tried::RemoveDirectory(path)
            | Tried::Unlink(path)
            | Tried::Symlink(path)
            | Tried::ReadLink(path) => self.unreachable(path, Follow::No).await,
        }
    }

    /// The parents of both are checked before the names.
    async fn missing_of_two(&self, from: &Path, to: &Path) -> Result<Errno, Lost> {
        let parents = [parent(from), parent(to)];
        for parent in parents {
            if self.kind_of(&parent, Follow::Yes).await? != Some(FileKind::Directory) {
                let under = parent.join("x");
                return self.unreachable(&under, Follow::No).await;
            }
        }
        if self.exists(&without_slash(from)).await? {
            Ok(Errno::NOTDIR)
        } else {
            Ok(Errno::NOENT)
        }
    }

    /// Why a path leads nowhere. Something that is there and is no directory was wanted as one.
    async fn unreachable(&self, path: &Path, follow: Follow) -> Result<Errno, Lost> {
        let (mut path, mut follow) = (path.to_owned(), follow);
        let mut links = 0;
        loop {
            match self.look(&path, Follow::No).await? {
                Ok(found) if stat::kind(found.mode.unwrap_or(0)) == FileKind::Symlink => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Ok(Errno::LOOP);
                    }
                    if follow == Follow::No && !ends_with_slash(&path) {
                        return Ok(Errno::NOTDIR);
                    }
                    let Some(target) = self.target(&path).await? else {
                        return Ok(Errno::NOENT);
                    };
                    path = parent(&path).join(target);
                    follow = Follow::Yes;
                }
                Ok(_) => return Ok(Errno::NOTDIR),
                Err(code::PERMISSION_DENIED) => return Ok(Errno::ACCESS),
                Err(_) => {
                    let above = parent(&path);
                    if above == path {
                        return Ok(Errno::NOENT);
                    }
                    match self.look(&above, Follow::Yes).await? {
                        Ok(found) if stat::kind(found.mode.unwrap_or(0)) == FileKind::Directory => {
                            return self.beneath(&path).await;
                        }
                        Ok(_) => return Ok(Errno::NOTDIR),
                        Err(code::PERMISSION_DENIED) => return Ok(Errno::ACCESS),
                        Err(_) => (path, follow) = (above, Follow::Yes),
                    }
                }
            }
        }
    }

    /// The directory is there. A path that ends with a slash may name something in it that is no directory.
    async fn beneath(&self, path: &Path) -> Result<Errno, Lost> {
        if !ends_with_slash(path) {
            return Ok(Errno::NOENT);
        }
        let bare = without_slash(path);
        match self.kind_of(&bare, Follow::Yes).await? {
            Some(FileKind::Directory) | None => Ok(Errno::NOENT),
            Some(_) => Ok(Errno::NOTDIR),
        }
    }

    async fn target(&self, path: &Path) -> Result<Option<PathBuf>, Lost> {
        let request = Request::new(kind::READLINK).string(path_bytes(path));
        Ok(match self.ask(request).await? {
            Reply::Names(mut names) if names.len() == 1 => {
                names.pop().map(|name| to_path(&name.name))
            }
            _ => None,
        })
    }

    /// `EACCES` is a missing right to read, write or search; `EPERM` what only an owner or root may do.
    async fn denied(&self, tried: Tried<'_>) -> Result<Errno, Lost> {
        let owner_s = match tried {
            Tried::Set(path, follow) => self.look(path, follow).await?.is_ok(),
            Tried::Handle => true,
            Tried::Link(existing, new) => {
                self.is_dir(existing).await?
                    || (self.exists(existing).await? && self.may_write(&parent(new)).await?)
            }
            Tried::Unlink(path) | Tried::RemoveDirectory(path) => self.is_kept(path).await?,
            Tried::Rename(from, to) => self.is_kept(from).await? || self.is_kept(to).await?,
            _ => false,
        };
        Ok(if owner_s { Errno::PERM } else { Errno::ACCESS })
    }

    /// Whether the sticky bit keeps a name: everybody may write to its directory, so nothing else can have refused.
    async fn is_kept(&self, path: &Path) -> Result<bool, Lost> {
        if !self.exists(path).await? {
            return Ok(false);
        }
        let above = self.look(&parent(path), Follow::Yes).await?;
        let mode = above.ok().and_then(|found| found.mode).unwrap_or(0);
        Ok(mode & STICKY != 0 && mode & WRITABLE_FOR_ALL != 0)
    }

    async fn may_write(&self, dir: &Path) -> Result<bool, Lost> {
        let found = self.look(dir, Follow::Yes).await?;
        let mode = found.ok().and_then(|found| found.mode).unwrap_or(0);
        Ok(mode & WRITABLE_FOR_ALL != 0)
    }

    /// Everything that the server calls a failure.
    async fn failed(&self, tried: Tried<'_>) -> Result<Errno, Lost> {
        match tried {
            Tried::Open(path, flags) => self.failed_open(path, flags).await,
            Tried::MakeDirectory(path) | Tried::Symlink(path) => {
                if self.exists(&without_slash(path)).await? {
                    return Ok(Errno::EXIST);
                }
                Ok(self
                    .full_or_fixed(&parent(path))
                    .await?
                    .unwrap_or(Errno::IO))
            }
            Tried::RemoveDirectory(path) => self.failed_rmdir(path).await,
            Tried::Unlink(path) => {
                if self.is_dir(path).await? {
                    return Ok(Errno::ISDIR);
                }
                Ok(self.fixed(&parent(path)).await?.unwrap_or(Errno::BUSY))
            }
            Tried::Rename(from, to) => self.failed_rename(from, to).await,
            Tried::Link(existing, new) => {
                if self.exists(new).await? {
                    return Ok(Errno::EXIST);
                }
                match self.apart(existing, new).await? {
                    Some(errno) => Ok(errno),
                    None => self.across(new).await,
                }
            }
            Tried::Set(path, Follow::No) if !self.is_dir(path).await? => Ok(Errno::NOTSUP),
            Tried::Set(path, _) | Tried::Look(path, _) | Tried::List(path) => {
                Ok(self.fixed(path).await?.unwrap_or(Errno::IO))
            }
            Tried::Read(handle) => self.failed_read(handle).await,
            Tried::Write(handle) => self.failed_write(handle).await,
            Tried::ReadLink(_) | Tried::Handle => Ok(Errno::IO),
        }
    }

    async fn failed_open(&self, path: &Path, flags: OpenFlags) -> Result<Errno, Lost> {
        if flags.create && ends_with_slash(path) {
            return Ok(Errno::ISDIR);
        }
        if flags.create && flags.exclusive && self.exists(path).await? {
            return Ok(Errno::EXIST);
        }
        match self.kind_of(path, Follow::Yes).await? {
            Some(FileKind::Directory) => return Ok(Errno::ISDIR),
            Some(FileKind::Socket) => return Ok(Errno::NXIO),
            Some(_) => {}
            None => {
                return Ok(self
                    .full_or_fixed(&parent(path))
                    .await?
                    .unwrap_or(Errno::IO));
            }
        }
        if flags.write || flags.append {
            let fixed = self.fixed(path).await?;
            return Ok(fixed.unwrap_or(Errno::TXTBSY));
        }
        Ok(Errno::IO)
    }

    async fn failed_rmdir(&self, path: &Path) -> Result<Errno, Lost> {
        if path != Path::new("/") && self.may_have_entries(path).await? {
            return Ok(Errno::NOTEMPTY);
        }
        Ok(self.fixed(&parent(path)).await?.unwrap_or(Errno::BUSY))
    }

    async fn failed_rename(&self, from: &Path, to: &Path) -> Result<Errno, Lost> {
        if is_dots(from) || is_dots(to) {
            return Ok(Errno::BUSY);
        }
        if let Some(errno) = self.apart(from, to).await? {
            return Ok(errno);
        }
        if self.is_dir(to).await? {
            if !self.is_dir(from).await? {
                return Ok(Errno::ISDIR);
            }
            if self.may_have_entries(to).await? {
                return Ok(Errno::NOTEMPTY);
            }
        }
        self.across(to).await
    }

    /// Two places on file systems that are known to be different ones.
    async fn apart(&self, from: &Path, to: &Path) -> Result<Option<Errno>, Lost> {
        let here = self.system(&parent(from)).await?;
        let there = self.system(&parent(to)).await?;
        let differ = here
            .zip(there)
            .is_some_and(|(here, there)| here.id != there.id);
        Ok(differ.then_some(Errno::XDEV))
    }

    /// What is left: a file system that takes nothing, or two mounts of the same one.
    async fn across(&self, to: &Path) -> Result<Errno, Lost> {
        let errno = self.full_or_fixed(&parent(to)).await?;
        Ok(errno.unwrap_or(Errno::XDEV))
    }

    async fn failed_read(&self, handle: &Bytes) -> Result<Errno, Lost> {
        let request = Request::new(kind::FSTAT).string(handle);
        Ok(match self.ask(request).await? {
            Reply::Attributes(found)
                if stat::kind(found.mode.unwrap_or(0)) == FileKind::Directory =>
            {
                Errno::ISDIR
            }
            _ => Errno::IO,
        })
    }

    async fn failed_write(&self, handle: &Bytes) -> Result<Errno, Lost> {
        if !self.extensions.statvfs {
            return Ok(Errno::IO);
        }
        let request = Request::extended("fstatvfs@openssh.com").string(handle);
        let system = system_of(self.ask(request).await?);
        Ok(match system {
            Some(system) if system.is_full() => Errno::NOSPC,
            _ => Errno::IO,
        })
    }

    /// One that may not be listed is taken to hold something, which is why most removals fail.
    async fn may_have_entries(&self, dir: &Path) -> Result<bool, Lost> {
        let request = Request::new(kind::OPENDIR).string(path_bytes(dir));
        let handle = match self.ask(request).await? {
            Reply::Handle(handle) => handle,
            Reply::Status(status) => return Ok(status.code == code::PERMISSION_DENIED),
            _ => return Ok(false),
        };
        let mut found = false;
        while let Reply::Names(names) = self
            .ask(Request::new(kind::READDIR).string(&handle))
            .await?
        {
            found |= names
                .iter()
                .any(|name| !matches!(&name.name[..], b"." | b".."));
            if found {
                break;
            }
        }
        self.forget(handle);
        Ok(found)
    }

    async fn fixed(&self, path: &Path) -> Result<Option<Errno>, Lost> {
        let system = self.system(path).await?;
        Ok(system
            .filter(|system| system.flags & READ_ONLY != 0)
            .map(|_| Errno::ROFS))
    }

    async fn full_or_fixed(&self, path: &Path) -> Result<Option<Errno>, Lost> {
        if let Some(errno) = self.fixed(path).await? {
            return Ok(Some(errno));
        }
        let system = self.system(path).await?;
        Ok(system.filter(System::is_full).map(|_| Errno::NOSPC))
    }

    async fn system(&self, path: &Path) -> Result<Option<System>, Lost> {
        if !self.extensions.statvfs {
            return Ok(None);
        }
        let request = Request::extended("statvfs@openssh.com").string(path_bytes(path));
        Ok(system_of(self.ask(request).await?))
    }
}

/// A file system, as `statvfs@openssh.com` describes it.
struct System {
    free_blocks: u64,
    files: u64,
    free_files: u64,
    id: u64,
    flags: u64,
}

impl System {
    /// Some file systems count no files at all.
    const fn is_full(&self) -> bool {
        self.free_blocks == 0 || (self.files != 0 && self.free_files == 0)
    }
}

fn system_of(reply: Reply) -> Option<System> {
    let Reply::Extended(body) = reply else {
        return None;
    };
    let mut from = Decoder(body);
    let mut numbers = [0; 11];
    for number in &mut numbers {
        *number = from.u64().ok()?;
    }
    let [_, _, _, _, free_blocks, files, _, free_files, id, flags, _] = numbers;
    Some(System {
        free_blocks,
        files,
        free_files,
        id,
        flags,
    })
}

fn invalid(tried: Tried<'_>) -> Errno {
    let is_long = |path: &Path| {
        let bytes = path_bytes(path);
        bytes.len() >= PATH_BYTES
            || bytes
                .split(|byte| *byte == b'/')
                .any(|name| name.len() > NAME_BYTES_MAX)
    };
    let long = match tried {
        Tried::Open(path, _)
        | Tried::Look(path, _)
        | Tried::List(path)
        | Tried::MakeDirectory(path)
        | Tried::RemoveDirectory(path)
        | Tried::Unlink(path)
        | Tried::Symlink(path)
        | Tried::ReadLink(path)
        | Tried::Set(path, _) => is_long(path),
        Tried::Rename(from, to) | Tried::Link(from, to) => is_long(from) || is_long(to),
        Tried::Read(_) | Tried::Write(_) | Tried::Handle => false,
    };
    if long {
        Errno::NAMETOOLONG
    } else {
        Errno::INVAL
    }
}

/// Whether the last name is the directory itself or the one above.
fn is_dots(path: &Path) -> bool {
    matches!(
        path_bytes(path).rsplit(|byte| *byte == b'/').next(),
        Some(b"." | b"..")
    )
}

fn ends_with_slash(path: &Path) -> bool {
    let bytes = path_bytes(path);
    bytes.len() > 1 && bytes.ends_with(b"/")
}

fn without_slash(path: &Path) -> PathBuf {
    let mut bytes = path_bytes(path);
    while let [head @ .., b'/'] = bytes
        && !head.is_empty()
    {
        bytes = head;
    }
    to_path(bytes)
}

/// The directory in which the path's last name stands; the root's is the root.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => ".".into(),
        Some(parent) => parent.to_owned(),
        None => path.to_owned(),
    }
}
