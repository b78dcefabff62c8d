//! The operations of a file system, as requests.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::io::Errno;

use super::{
    SftpProvider,
    cause::Tried,
    file::SftpFile,
    lost,
    session::{Lost, Session},
    stat,
    watch::SftpWatcher,
    wire::{Change, Decoder, Malformed, PATH_BYTES_MAX, Reply, Request, Status, code, kind},
};
use crate::{
    Access, Capabilities, Entry, FileKind, Follow, FsError, OpenFile, OpenFlags, Provider, Stat,
    Watcher, error::chain,
};

/// Flags of an open request.
mod open {
    pub(super) const READ: u32 = 1;
    pub(super) const WRITE: u32 = 2;
    pub(super) const APPEND: u32 = 4;
    pub(super) const CREATE: u32 = 8;
    pub(super) const TRUNCATE: u32 = 16;
    pub(super) const EXCLUSIVE: u32 = 32;
}

/// A directory's names are read in one go, up to this many bytes of them.
const DIRECTORY_BYTES_MAX: usize = 256 << 20;

pub(super) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

pub(super) fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// One operation on paths: it knows how its errors look.
struct Operation<'a> {
    syscall: &'static str,
    path: &'a Path,
    dest: Option<&'a Path>,
}

impl<'a> Operation<'a> {
    const fn new(syscall: &'static str, path: &'a Path) -> Self {
        Self {
            syscall,
            path,
            dest: None,
        }
    }

    const fn dest(mut self, dest: &'a Path) -> Self {
        self.dest = Some(dest);
        self
    }

    fn error(&self, errno: Errno) -> FsError {
        let error = FsError::new(errno, self.syscall, self.path);
        match self.dest {
            Some(dest) => error.dest(dest),
            None => error,
        }
    }

    fn lost(&self, why: &Lost) -> FsError {
        let error = lost(why, self.syscall, Some(self.path));
        match self.dest {
            Some(dest) => error.dest(dest),
            None => error,
        }
    }

    /// What no kernel would take is not sent: a path with a NUL in it would end the server.
    fn check(&self) -> Result<(), FsError> {
        for path in [Some(self.path), self.dest].into_iter().flatten() {
            let bytes = path_bytes(path);
            let refused = match bytes {
                [] => Some(Errno::NOENT),
                _ if bytes.contains(&0) => Some(Errno::INVAL),
                _ if bytes.len() > PATH_BYTES_MAX => Some(Errno::NAMETOOLONG),
                _ => None,
            };
            if let Some(errno) = refused {
                return Err(self.error(errno));
            }
        }
        Ok(())
    }

    async fn ask(&self, session: &Session, request: Request) -> Result<Reply, FsError> {
        session.ask(request).await.map_err(|why| self.lost(&why))
    }

    /// A request that is answered by nothing but its status.
    async fn done(
        &self,
        session: &Session,
        request: Request,
        tried: Tried<'_>,
    ) -> Result<(), FsError> {
        match self.ask(session, request).await? {
            Reply::Status(Status { code: code::OK, .. }) => Ok(()),
            Reply::Status(status) => Err(self.failed(session, tried, status).await),
            _ => Err(self.malformed()),
        }
    }

    async fn handle(
        &self,
        session: &Session,
        request: Request,
        tried: Tried<'_>,
    ) -> Result<Bytes, FsError> {
        match self.ask(session, request).await? {
            Reply::Handle(handle) => Ok(handle),
            Reply::Status(status) => Err(self.failed(session, tried, status).await),
            _ => Err(self.malformed()),
        }
    }

    async fn one_name(
        &self,
        session: &Session,
        request: Request,
        tried: Tried<'_>,
    ) -> Result<PathBuf, FsError> {
        match self.ask(session, request).await? {
            Reply::Names(names) if names.len() == 1 => Ok(to_path(&names[0].name)),
            Reply::Status(status) => Err(self.failed(session, tried, status).await),
            _ => Err(self.malformed()),
        }
    }

    async fn failed(&self, session: &Session, tried: Tried<'_>, status: Status) -> FsError {
        self.error(session.cause(tried, status).await)
    }

    fn malformed(&self) -> FsError {
        self.lost(&Lost::Malformed(Malformed))
    }
}

impl SftpProvider {
    async fn begin(&self, operation: &Operation<'_>) -> Result<std::sync::Arc<Session>, FsError> {
        operation.check()?;
        self.session(operation.syscall, operation.path).await
    }

    async fn set(
        &self,
        operation: &Operation<'_>,
        change: Change,
        follow: Follow,
    ) -> Result<(), FsError> {
        let session = self.begin(operation).await?;
        let request = match follow {
            Follow::Yes => Request::new(kind::SETSTAT),
            Follow::No if session.extensions.lsetstat => Request::extended("lsetstat@openssh.com"),
            Follow::No => return Err(operation.error(Errno::NOSYS)),
        };
        let request = request.string(path_bytes(operation.path)).change(&change);
        let tried = Tried::Set(operation.path, follow);
        operation.done(&session, request, tried).await
    }

    /// A right that a server of version 3 cannot be asked for.
    async fn probe(&self, operation: &Operation<'_>, access: Access) -> Result<(), FsError> {
        if access == Access::default() {
            return Ok(());
        }
        match self.connect.access(operation.path, access).await {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(operation.error(Errno::ACCESS)),
            Some(Err(error)) => Err(operation.error(Errno::CONNRESET).detail(chain(&error))),
            None => Err(operation.error(Errno::NOSYS)),
        }
    }
}

const fn flag(is_set: bool, bit: u32) -> u32 {
    if is_set { bit } else { 0 }
}

fn open_flags(flags: OpenFlags) -> u32 {
    flag(flags.read, open::READ)
        | flag(flags.write || flags.append, open::WRITE)
        | flag(flags.append, open::APPEND)
        | flag(flags.create, open::CREATE)
        | flag(flags.truncate, open::TRUNCATE)
        | flag(flags.exclusive, open::EXCLUSIVE)
}

async fn stat_of(
    session: &Session,
    operation: &Operation<'_>,
    follow: Follow,
) -> Result<Stat, FsError> {
    let path = path_bytes(operation.path);
    let request = match follow {
        _ if session.extensions.ours => Request::extended("stat@bulkhead")
            .string(path)
            .u32(u32::from(follow == Follow::Yes)),
        Follow::Yes => Request::new(kind::STAT).string(path),
        Follow::No => Request::new(kind::LSTAT).string(path),
    };
    match operation.ask(session, request).await? {
        Reply::Attributes(attributes) => Ok(stat::plain(&attributes)),
        Reply::Extended(body) => stat::whole(&mut Decoder(body)).map_err(|_| operation.malformed()),
        Reply::Status(status) => {
            let tried = Tried::Look(operation.path, follow);
            Err(operation.failed(session, tried, status).await)
        }
        _ => Err(operation.malformed()),
    }
}

async fn entries(
    session: &Session,
    operation: &Operation<'_>,
    handle: &Bytes,
) -> Result<Vec<Entry>, FsError> {
    let mut entries = Vec::new();
    let mut bytes = 0;
    loop {
        let request = Request::new(kind::READDIR).string(handle);
        let names = match operation.ask(session, request).await? {
            Reply::Names(names) => names,
            Reply::Status(Status {
                code: code::EOF, ..
            }) => return Ok(entries),
            Reply::Status(status) => {
                return Err(operation.failed(session, Tried::Handle, status).await);
            }
            _ => return Err(operation.malformed()),
        };
        for name in names {
            if matches!(&name.name[..], b"." | b"..") {
                continue;
            }
            bytes += name.name.len() + size_of::<Entry>();
            let kind = name.attributes.mode.map_or(FileKind::Unknown, stat::kind);
            let name = OsStr::from_bytes(&name.name).to_owned();
            entries.push(Entry { name, kind });
        }
        if bytes > DIRECTORY_BYTES_MAX {
            let error = operation.error(Errno::NOMEM);
            return Err(error.detail("the directory is too large to be read in one go"));
        }
    }
}

#[async_trait]
impl Provider for SftpProvider {
    /// Watching depends on the server, which is not known before the first operation; asking says it.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            readonly: false,
            symlinks: true,
            watch: self.connect.can_watch(),
        }
    }

    async fn open(
        &self,
        path: &Path,
        flags: OpenFlags,
        permissions: u32,
    ) -> Result<Box<dyn OpenFile>, FsError> {
        let operation = Operation::new("open", path);
        let session = self.begin(&operation).await?;
        let request = Request::new(kind::OPEN)
            .string(path_bytes(path))
            .u32(open_flags(flags));
        let request = if flags.create {
            request.change(&Change::Permissions(permissions))
        } else {
            request.change(&Change::Nothing)
        };
        let tried = Tried::Open(path, flags);
        let handle = operation.handle(&session, request, tried).await?;
        Ok(Box::new(SftpFile::new(session, handle)))
    }

    async fn stat(&self, path: &Path, follow: Follow) -> Result<Stat, FsError> {
        let syscall = match follow {
            Follow::Yes => "stat",
            Follow::No => "lstat",
        };
        let operation = Operation::new(syscall, path);
        let session = self.begin(&operation).await?;
        stat_of(&session, &operation, follow).await
    }

    async fn readdir(&self, path: &Path) -> Result<Vec<Entry>, FsError> {
        let operation = Operation::new("scandir", path);
        let session = self.begin(&operation).await?;
        let request = Request::new(kind::OPENDIR).string(path_bytes(path));
        let handle = operation
            .handle(&session, request, Tried::List(path))
            .await?;
        let entries = entries(&session, &operation, &handle).await;
        session.forget(handle);
        entries
    }

    async fn mkdir(&self, path: &Path, permissions: u32) -> Result<(), FsError> {
        let operation = Operation::new("mkdir", path);
        let session = self.begin(&operation).await?;
        let request = Request::new(kind::MKDIR)
            .string(path_bytes(path))
            .change(&Change::Permissions(permissions));
        operation
            .done(&session, request, Tried::MakeDirectory(path))
            .await
    }

    async fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        let operation = Operation::new("rmdir", path);
        let session = self.begin(&operation).await?;
        let request = Request::new(kind::RMDIR).string(path_bytes(path));
        operation
            .done(&session, request, Tried::RemoveDirectory(path))
            .await
    }

    async fn unlink(&self, path: &Path) -> Result<(), FsError> {
        let operation = Operation::new("unlink", path);
        let session = self.begin(&operation).await?;
        let request = Request::new(kind::REMOVE).string(path_bytes(path));
        operation.done(&session, request, Tried::Unlink(path)).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        let operation = Operation::new("rename", from).dest(to);
        let session = self.begin(&operation).await?;
        // Version 3's own rename does not replace, and what it does instead of it differs between servers.
        if !session.extensions.posix_rename {
            return Err(operation.error(Errno::NOSYS));
        }
        let request = Request::extended("posix-rename@openssh.com")
            .string(path_bytes(from))
            .string(path_bytes(to));
        operation
            .done(&session, request, Tried::Rename(from, to))
            .await
    }

    async fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        let operation = Operation::new("link", existing).dest(new);
        let session = self.begin(&operation).await?;
        if !session.extensions.hardlink {
            return Err(operation.error(Errno::NOSYS));
        }
        let request = Request::extended("hardlink@openssh.com")
            .string(path_bytes(existing))
            .string(path_bytes(new));
        operation
            .done(&session, request, Tried::Link(existing, new))
            .await
    }

    async fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        let operation = Operation::new("symlink", target).dest(path);
        let session = self.begin(&operation).await?;
        // The target first: OpenSSH's order, which is not the draft's, and which everybody follows.
        let request = Request::new(kind::SYMLINK)
            .string(path_bytes(target))
            .string(path_bytes(path));
        operation
            .done(&session, request, Tried::Symlink(path))
            .await
    }

    async fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        let operation = Operation::new("readlink", path);
        let session = self.begin(&operation).await?;
        let request = Request::new(kind::READLINK).string(path_bytes(path));
        operation
            .one_name(&session, request, Tried::ReadLink(path))
            .await
    }

    async fn realpath(&self, path: &Path) -> Result<PathBuf, FsError> {
        let operation = Operation::new("realpath", path);
        let session = self.begin(&operation).await?;
        // OpenSSH's server resolves a last name that is not there, which `realpath(3)` refuses.
        if !session.extensions.ours {
            stat_of(&session, &operation, Follow::Yes).await?;
        }
        let request = Request::new(kind::REALPATH).string(path_bytes(path));
        let tried = Tried::Look(path, Follow::Yes);
        operation.one_name(&session, request, tried).await
    }

    async fn access(&self, path: &Path, access: Access) -> Result<(), FsError> {
        let operation = Operation::new("access", path);
        let session = self.begin(&operation).await?;
        if session.extensions.ours {
            let bits = flag(access.read, 4) | flag(access.write, 2) | flag(access.execute, 1);
            let request = Request::extended("access@bulkhead")
                .string(path_bytes(path))
                .u32(bits);
            let tried = Tried::Look(path, Follow::Yes);
            return operation.done(&session, request, tried).await;
        }
        stat_of(&session, &operation, Follow::Yes).await?;
        self.probe(&operation, access).await
    }

    async fn chmod(&self, path: &Path, permissions: u32) -> Result<(), FsError> {
        let operation = Operation::new("chmod", path);
        let change = Change::Permissions(permissions & 0o7777);
        self.set(&operation, change, Follow::Yes).await
    }

    async fn chown(&self, path: &Path, uid: u32, gid: u32, follow: Follow) -> Result<(), FsError> {
        let syscall = match follow {
            Follow::Yes => "chown",
            Follow::No => "lchown",
        };
        let operation = Operation::new(syscall, path);
        self.set(&operation, Change::Owner(uid, gid), follow).await
    }

    async fn utimes(
        &self,
        path: &Path,
        accessed: SystemTime,
        modified: SystemTime,
        follow: Follow,
    ) -> Result<(), FsError> {
        let syscall = match follow {
            Follow::Yes => "utime",
            Follow::No => "lutime",
        };
        let operation = Operation::new(syscall, path);
        let session = self.begin(&operation).await?;
        if !session.extensions.ours {
            let change = Change::Times(stat::seconds(accessed), stat::seconds(modified));
            return self.set(&operation, change, follow).await;
        }
        let (a, m) = (stat::since_epoch(accessed), stat::since_epoch(modified));
        let request = Request::extended("utimes@bulkhead")
            .string(path_bytes(path))
            .u32(u32::from(follow == Follow::Yes))
            .i64(a.0)
            .u32(a.1)
            .i64(m.0)
            .u32(m.1);
        operation
            .done(&session, request, Tried::Set(path, follow))
            .await
    }

    async fn watch(&self, path: &Path) -> Result<Box<dyn Watcher>, FsError> {
        let operation = Operation::new("watch", path);
        let session = self.begin(&operation).await?;
        if !session.extensions.ours {
            return Err(operation.error(Errno::NOSYS));
        }
        let request = Request::extended("watch@bulkhead").string(path_bytes(path));
        let tried = Tried::Look(path, Follow::Yes);
        let handle = operation.handle(&session, request, tried).await?;
        Ok(Box::new(SftpWatcher::new(session, handle)))
    }
}
