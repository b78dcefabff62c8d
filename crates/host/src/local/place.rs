//! From a path to what a system call is given, with the kernel resolving every step.
//!
//! Unrooted, a path is simply the machine's. Rooted in a directory, the kernel resolves it with that directory as `/`:
//! neither `..` nor an absolute symbolic link nor a rename by somebody else at the same moment leads out, and no
//! string is ever compared for that. The last step of an operation on a name (not on what it leads to) is made at the
//! descriptor of the name's directory.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags},
    io::{Errno, Result},
};

use crate::Follow;

/// How often a resolution is tried again that a rename elsewhere has disturbed.
const TRIES: u32 = 128;
const RESOLVE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
/// A descriptor that only says which file is meant.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Where paths begin.
#[derive(Debug)]
pub(super) enum Base {
    /// Relative paths begin at this directory, absolute ones at the machine's root.
    Free(PathBuf),
    /// All paths begin, and end, in this directory.
    Rooted(OwnedFd),
}

/// A name in a directory, for calls that work on the name.
pub(super) struct Named {
    dir: Option<OwnedFd>,
    name: PathBuf,
}

/// A file, for calls that work on what is there.
pub(super) struct Found {
    file: Option<OwnedFd>,
    path: PathBuf,
    flags: AtFlags,
}

impl Named {
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, |dir| dir.as_fd())
    }

    pub(super) fn name(&self) -> &Path {
        &self.name
    }
}

impl Found {
    /// The three arguments of a call of the `…at` family.
    pub(super) fn at(&self) -> (BorrowedFd<'_>, &Path, AtFlags) {
        let dir = self.file.as_ref().map_or(CWD, |file| file.as_fd());
        (dir, &self.path, self.flags)
    }

    /// A path to the very file, for calls that take nothing else.
    pub(super) fn path(&self) -> PathBuf {
        match &self.file {
            Some(file) => PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
            None => self.path.clone(),
        }
    }
}

impl Base {
    pub(super) fn rooted(dir: &Path) -> Result<Self> {
        let flags = PLACE | OFlags::DIRECTORY;
        rustix::fs::open(dir, flags, Mode::empty()).map(Self::Rooted)
    }

    pub(super) fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        match self {
            Self::Free(cwd) => rustix::fs::open(below(cwd, path), flags | OFlags::CLOEXEC, mode),
            Self::Rooted(root) => open_in(root, path, flags | OFlags::CLOEXEC, mode),
        }
    }

    pub(super) fn find(&self, path: &Path, follow: Follow) -> Result<Found> {
        let follows = follow == Follow::Yes;
        match self {
            Self::Free(cwd) => Ok(Found {
                file: None,
                path: below(cwd, path),
                flags: if follows {
                    AtFlags::empty()
                } else {
                    AtFlags::SYMLINK_NOFOLLOW
                },
            }),
            Self::Rooted(root) => {
                let flags = if follows {
                    PLACE
                } else {
                    PLACE | OFlags::NOFOLLOW
                };
                Ok(Found {
                    file: Some(open_in(root, path, flags, Mode::empty())?),
                    path: PathBuf::new(),
                    flags: AtFlags::EMPTY_PATH,
                })
            }
        }
    }

    pub(super) fn name(&self, path: &Path) -> Result<Named> {
        match self {
            Self::Free(cwd) => Ok(Named {
                dir: None,
                name: below(cwd, path),
            }),
            Self::Rooted(root) => {
                let (parent, name) = split(path)?;
                let flags = PLACE | OFlags::DIRECTORY;
                Ok(Named {
                    dir: Some(open_in(root, parent, flags, Mode::empty())?),
                    name: name.to_owned(),
                })
            }
        }
    }

    /// The path of a file as this base shows it, without symbolic links.
    pub(super) fn real(&self, path: &Path) -> Result<PathBuf> {
        match self {
            Self::Free(cwd) => {
                let real = std::fs::canonicalize(below(cwd, path));
                real.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            Self::Rooted(root) => {
                let file = open_in(root, path, PLACE, Mode::empty())?;
                // Both as the kernel says at this moment; this only words an answer and grants nothing.
                let (root, file) = (path_of(root)?, path_of(&file)?);
                let inside = file.strip_prefix(root).map_err(|_| Errno::NOENT)?;
                Ok(Path::new("/").join(inside))
            }
        }
    }
}

/// The empty path stays what it is: there is no such file.
fn below(cwd: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        PathBuf::new()
    } else {
        cwd.join(path)
    }
}

fn open_in(root: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    for _ in 0..TRIES {
        match rustix::fs::openat2(root, path, flags, mode, RESOLVE) {
            // Something on the way was renamed meanwhile.
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// The path of the directory, and the name in it with the slashes that follow it. The kernel makes nothing of the
/// names `.` and `..`, nor follows a link, in any call that is given such a name.
fn split(path: &Path) -> Result<(&Path, &Path)> {
    let bytes = path.as_os_str().as_bytes();
    let last = bytes.iter().rposition(|byte| *byte != b'/');
    let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
    let Some(last) = last else {
        return match bytes {
            [] => Err(Errno::NOENT),
            _ => Err(Errno::BUSY),
        };
    };
    let start = bytes[..=last].iter().rposition(|byte| *byte == b'/');
    let start = start.map_or(0, |slash| slash + 1);
    let parent: &[u8] = match start {
        0 => b".",
        _ => &bytes[..start],
    };
    Ok((as_path(parent), as_path(&bytes[start..])))
}

fn path_of(file: &OwnedFd) -> Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}
