//! The file system of this machine, all of it or rooted in a directory.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use async_trait::async_trait;
use rustix::{
    fs::{AtFlags, CWD},
    io::{Errno, Result as Answer},
};

use super::{
    calls,
    open_file::{LocalFile, owner},
    place::{Base, Found, Named},
    watch,
};
use crate::{
    Access, Capabilities, Entry, Follow, FsError, OpenFile, OpenFlags, Provider, Stat, Watcher,
};

/// The files of this machine, with the rights of this process. Each call runs on a thread where it may wait.
#[derive(Debug, Clone)]
pub struct LocalProvider {
    base: Arc<Base>,
}

impl LocalProvider {
    /// The whole machine; relative paths begin at `cwd`.
    pub fn new(cwd: impl Into<PathBuf>) -> Self {
        Self {
            base: Arc::new(Base::Free(cwd.into())),
        }
    }

    /// Only what lies in `dir`, which is `/` in its paths: the kernel resolves every one of them inside it, so neither
    /// `..` nor a symbolic link leads out, whoever makes or renames what meanwhile.
    pub fn rooted(dir: &Path) -> Result<Self, FsError> {
        let base = Base::rooted(dir).map_err(|errno| FsError::new(errno, "open", dir))?;
        Ok(Self {
            base: Arc::new(base),
        })
    }

    /// A call on what a path leads to.
    async fn on_file<T: Send + 'static>(
        &self,
        syscall: &'static str,
        path: &Path,
        follow: Follow,
        call: impl FnOnce(&Found) -> Answer<T> + Send + 'static,
    ) -> Result<T, FsError> {
        let given = path.to_owned();
        self.call(syscall, path, move |base| {
            base.find(&given, follow).and_then(|found| call(&found))
        })
        .await
    }

    /// A call on a name in its directory.
    async fn on_name<T: Send + 'static>(
        &self,
        syscall: &'static str,
        path: &Path,
        call: impl FnOnce(&Named) -> Answer<T> + Send + 'static,
    ) -> Result<T, FsError> {
        let given = path.to_owned();
        self.call(syscall, path, move |base| {
            base.name(&given).and_then(|named| call(&named))
        })
        .await
    }

    /// A call on two names.
    async fn on_names(
        &self,
        syscall: &'static str,
        paths: (&Path, &Path),
        call: impl FnOnce(&Named, &Named) -> Answer<()> + Send + 'static,
    ) -> Result<(), FsError> {
        let (from, to) = (paths.0.to_owned(), paths.1.to_owned());
        let both = move |base: &Base| call(&base.name(&from)?, &base.name(&to)?);
        let done = self.call(syscall, paths.0, both).await;
        done.map_err(|error| error.dest(paths.1))
    }

    async fn call<T: Send + 'static>(
        &self,
        syscall: &'static str,
        path: &Path,
        call: impl FnOnce(&Base) -> Answer<T> + Send + 'static,
    ) -> Result<T, FsError> {
        let (base, given) = (Arc::clone(&self.base), path.to_owned());
        let failed = move |errno| FsError::new(errno, syscall, &given);
        blocking(path, syscall, move || call(&base).map_err(failed)).await
    }
}

#[async_trait]
impl Provider for LocalProvider {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            readonly: false,
            symlinks: true,
            watch: true,
        }
    }

    async fn open(
        &self,
        path: &Path,
        flags: OpenFlags,
        permissions: u32,
    ) -> Result<Box<dyn OpenFile>, FsError> {
        let given = path.to_owned();
        let open = move |base: &Base| {
            base.open(&given, calls::open_flags(flags), calls::mode(permissions))
        };
        let file = self.call("open", path, open).await?;
        Ok(Box::new(LocalFile::new(file, path)))
    }

    async fn stat(&self, path: &Path, follow: Follow) -> Result<Stat, FsError> {
        let syscall = match follow {
            Follow::Yes => "stat",
            Follow::No => "lstat",
        };
        let stat = |found: &Found| {
            let (file, path, flags) = found.at();
            calls::stat(file, path, flags)
        };
        self.on_file(syscall, path, follow, stat).await
    }

    async fn readdir(&self, path: &Path) -> Result<Vec<Entry>, FsError> {
        let given = path.to_owned();
        self.call("scandir", path, move |base| calls::readdir(base, &given))
            .await
    }

    async fn mkdir(&self, path: &Path, permissions: u32) -> Result<(), FsError> {
        let mode = calls::mode(permissions);
        self.on_name("mkdir", path, move |named| {
            rustix::fs::mkdirat(named.dir(), named.name(), mode)
        })
        .await
    }

    async fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.on_name("rmdir", path, |named| {
            rustix::fs::unlinkat(named.dir(), named.name(), AtFlags::REMOVEDIR)
        })
        .await
    }

    async fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.on_name("unlink", path, |named| {
            rustix::fs::unlinkat(named.dir(), named.name(), AtFlags::empty())
        })
        .await
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.on_names("rename", (from, to), |from, to| {
            rustix::fs::renameat(from.dir(), from.name(), to.dir(), to.name())
        })
        .await
    }

    async fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        self.on_names("link", (existing, new), |from, to| {
            let flags = AtFlags::empty();
            rustix::fs::linkat(from.dir(), from.name(), to.dir(), to.name(), flags)
        })
        .await
    }

    async fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        let (given, text) = (path.to_owned(), target.to_owned());
        let make = move |base: &Base| {
            let named = base.name(&given)?;
            rustix::fs::symlinkat(&text, named.dir(), named.name())
        };
        let made = self.call("symlink", target, make).await;
        made.map_err(|error| error.dest(path))
    }

    async fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.on_file("readlink", path, Follow::No, calls::readlink)
            .await
    }

    async fn realpath(&self, path: &Path) -> Result<PathBuf, FsError> {
        let given = path.to_owned();
        self.call("realpath", path, move |base| base.real(&given))
            .await
    }

    async fn access(&self, path: &Path, access: Access) -> Result<(), FsError> {
        let wanted = calls::access(access);
        self.on_file("access", path, Follow::Yes, move |found| {
            rustix::fs::accessat(CWD, found.path(), wanted, AtFlags::empty())
        })
        .await
    }

    async fn chmod(&self, path: &Path, permissions: u32) -> Result<(), FsError> {
        let mode = calls::mode(permissions);
        self.on_file("chmod", path, Follow::Yes, move |found| {
            rustix::fs::chmod(found.path(), mode)
        })
        .await
    }

    async fn chown(&self, path: &Path, uid: u32, gid: u32, follow: Follow) -> Result<(), FsError> {
        let (uid, gid) = owner(uid, gid);
        let syscall = match follow {
            Follow::Yes => "chown",
            Follow::No => "lchown",
        };
        self.on_file(syscall, path, follow, move |found| {
            let (file, path, flags) = found.at();
            rustix::fs::chownat(file, path, uid, gid, flags)
        })
        .await
    }

    async fn utimes(
        &self,
        path: &Path,
        accessed: SystemTime,
        modified: SystemTime,
        follow: Follow,
    ) -> Result<(), FsError> {
        let times = calls::timestamps(accessed, modified);
        let syscall = match follow {
            Follow::Yes => "utime",
            Follow::No => "lutime",
        };
        self.on_file(syscall, path, follow, move |found| {
            let (file, path, flags) = found.at();
            rustix::fs::utimensat(file, path, &times, flags)
        })
        .await
    }

    async fn watch(&self, path: &Path) -> Result<Box<dyn Watcher>, FsError> {
        let given = path.to_owned();
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        let begin = move |base: &Base| watch::begin(&base.find(&given, Follow::Yes)?.path());
        let file = self.call("watch", path, begin).await?;
        let watcher = watch::LocalWatcher::new(file, path, name);
        Ok(Box::new(watcher?))
    }
}

/// Runs a call where it may wait. A call that panicked is told as an input/output error.
pub(super) async fn blocking<T: Send + 'static>(
    path: &Path,
    syscall: &'static str,
    call: impl FnOnce() -> Result<T, FsError> + Send + 'static,
) -> Result<T, FsError> {
    match tokio::task::spawn_blocking(call).await {
        Ok(answer) => answer,
        Err(error) => Err(FsError::new(Errno::IO, syscall, path).detail(error.to_string())),
    }
}
