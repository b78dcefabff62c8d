//! The data directory: what lies where, who may read it, and that one server at a time uses it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::error::{Error, Result, file};

/// Whether the opener is the server of this data directory or a command beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The one server: it holds the directory's lock for as long as it lives.
    Server,
    /// The one server, after whoever holds the directory now, if that ends in time: it waits in the kernel, so that a
    /// row of short commands, each of which holds the directory for a moment, cannot keep it out.
    NextServer { patience: Duration },
    /// A command such as `secrets set`: it works beside a running server, on rows only.
    Tool,
}

/// An open data directory. The lock is the kernel's (`flock`), so it ends with the process, however
/// that ends.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    /// None for a tool beside a running server. One without a server holds it only while it brings the
    /// database to this version.
    lock: Option<File>,
}

impl DataDir {
    /// Opens or makes the directory with everything below it private to this user.
    pub fn open(root: &Path, access: Access) -> Result<Self> {
        make_private(root)?;
        for below in ["logs", "artifacts", "git", "volumes", "plugins"] {
            make_private(&root.join(below))?;
        }
        Ok(Self {
            lock: lock(root, access)?,
            root: root.to_owned(),
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn database(&self) -> PathBuf {
        self.root.join("bulkhead.db")
    }

    pub fn key(&self) -> PathBuf {
        self.root.join("key")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub fn artifacts(&self) -> PathBuf {
        self.root.join("artifacts")
    }

    /// Bare repositories that the control plane keeps, one level below.
    pub fn git(&self) -> PathBuf {
        self.root.join("git")
    }

    /// Lets a server start beside this tool.
    pub(crate) fn unlock(&mut self) {
        self.lock = None;
    }

    /// Whether nobody else can be the server now: only then may files be mended or the shape of the
    /// database be changed.
    pub(crate) fn is_locked(&self) -> bool {
        self.lock.is_some()
    }
}

fn make_private(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(meta) => require_private(path, meta.permissions().mode(), 0o700),
        Err(error) if error.kind() == io::ErrorKind::NotFound => DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(file("make the directory", path)),
        Err(error) => Err(file("look at", path)(error)),
    }
}

/// Refuses what others may read. It is not made private here: the path may be one that the user
/// named by mistake, and changing its mode could harm others.
pub(crate) fn require_private(path: &Path, mode: u32, wanted: u32) -> Result<()> {
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::NotPrivate {
        path: path.to_owned(),
        mode: mode & 0o7777,
        wanted,
    })
}

fn lock(root: &Path, access: Access) -> Result<Option<File>> {
    let path = root.join("lock");
    let held = private_file(&path)?;
    match (held.try_lock(), access) {
        (Ok(()), _) => Ok(Some(held)),
        (Err(TryLockError::WouldBlock), Access::Tool) => Ok(None),
        (Err(TryLockError::WouldBlock), Access::Server) => Err(in_use(root)),
        (Err(TryLockError::WouldBlock), Access::NextServer { patience }) => {
            lock_within(held, patience)
                .ok_or_else(|| in_use(root))?
                .map(Some)
                .map_err(file("lock", path))
        }
        (Err(TryLockError::Error(error)), _) => Err(file("lock", path)(error)),
    }
}

fn in_use(root: &Path) -> Error {
    Error::InUse {
        path: root.to_owned(),
    }
}

/// The locked file, or nothing where somebody else held it all the time.
fn lock_within(held: File, patience: Duration) -> Option<io::Result<File>> {
    let (sender, locked) = mpsc::sync_channel(1);
    // The kernel's wait has no end of its own. A thread that is waited for no longer gives the lock back with the file.
    thread::spawn(move || sender.send(held.lock().map(|()| held)));
    locked.recv_timeout(patience).ok()
}

/// Opens a file for reading and writing, made for this user alone where it does not exist yet.
pub(crate) fn private_file(path: &Path) -> Result<File> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(file("open", path))?;
    let mode = opened
        .metadata()
        .map_err(file("look at", path))?
        .permissions()
        .mode();
    require_private(path, mode, 0o600)?;
    Ok(opened)
}
