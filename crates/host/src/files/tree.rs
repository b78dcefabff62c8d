//! Directories: listing them, also with what is below, and making them.

use std::{
    collections::VecDeque,
    ffi::OsString,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use super::{Dirent, Entry, FileKind, FileSystem, FsError, lexical};

/// A listing with what is below ends with an error at this many names: links to directories are followed, so a tree that
/// somebody else made may have no end that is worth waiting for.
const LISTED_MAX: usize = 1 << 20;
/// What `mkdtemp` adds.
const RANDOM_LETTERS: usize = 6;
const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// How many names are tried that somebody has already.
const RANDOM_TRIES: u32 = 100;

/// An open directory: its names, one after the other.
#[derive(Debug)]
pub struct Dir {
    path: PathBuf,
    entries: VecDeque<Entry>,
}

impl Dir {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Iterator for Dir {
    type Item = Dirent;

    fn next(&mut self) -> Option<Dirent> {
        let entry = self.entries.pop_front()?;
        Some(dirent(&self.path, entry))
    }
}

impl FileSystem {
    /// A directory's names with their kinds, in the order of their bytes.
    pub async fn readdir_with_types(&self, path: &Path) -> Result<Vec<Dirent>, FsError> {
        let entries = self.entries(path).await?;
        Ok(entries
            .into_iter()
            .map(|entry| dirent(path, entry))
            .collect())
    }

    /// The names below a directory, relative to it. Links to directories are followed, as in Node.
    pub async fn readdir_recursive(&self, path: &Path) -> Result<Vec<PathBuf>, FsError> {
        let all = self.walk(path).await?;
        let relative = |(dir, entry): (PathBuf, Entry)| dir.join(entry.name);
        Ok(all.into_iter().map(relative).collect())
    }

    /// The same with their kinds and directories.
    pub async fn readdir_recursive_with_types(&self, path: &Path) -> Result<Vec<Dirent>, FsError> {
        let all = self.walk(path).await?;
        let in_full = |(dir, entry): (PathBuf, Entry)| {
            let parent = if dir.as_os_str().is_empty() {
                path.to_owned()
            } else {
                lexical::normal(&path.join(dir))
            };
            dirent(&parent, entry)
        };
        Ok(all.into_iter().map(in_full).collect())
    }

    /// Opens a directory. Its names are read at once: what comes or goes later does not show.
    pub async fn opendir(&self, path: &Path) -> Result<Dir, FsError> {
        let entries = self.entries(path).await;
        let entries = entries.map_err(|error| error.during("opendir"))?;
        Ok(Dir {
            path: path.to_owned(),
            entries: entries.into(),
        })
    }

    pub(super) async fn entries(&self, path: &Path) -> Result<Vec<Entry>, FsError> {
        let mut entries = self.provider().readdir(path).await?;
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Every entry below, with the directory that it is in, relative to the first.
    async fn walk(&self, path: &Path) -> Result<Vec<(PathBuf, Entry)>, FsError> {
        let mut waiting = VecDeque::from([PathBuf::new()]);
        let mut all = Vec::new();
        while let Some(dir) = waiting.pop_front() {
            let place = match dir.as_os_str() {
                none if none.is_empty() => path.to_owned(),
                below => lexical::child(path, below),
            };
            for entry in self.entries(&place).await? {
                if self.leads_to_directory(&place, &entry).await {
                    waiting.push_back(dir.join(&entry.name));
                }
                if all.len() == LISTED_MAX {
                    let error = FsError::new(Errno::OVERFLOW, "scandir", path);
                    return Err(error.detail(format!("more than {LISTED_MAX} names")));
                }
                all.push((dir.clone(), entry));
            }
        }
        Ok(all)
    }

    async fn leads_to_directory(&self, dir: &Path, entry: &Entry) -> bool {
        match entry.kind {
            FileKind::Directory => true,
            FileKind::Symlink | FileKind::Unknown => {
                let stat = self.stat(&lexical::child(dir, &entry.name)).await;
                stat.is_ok_and(|stat| stat.is_directory())
            }
            _ => false,
        }
    }

    /// Makes a directory and those above it that are missing; says which was the first one made.
    pub async fn mkdir_recursive(
        &self,
        path: &Path,
        permissions: u32,
    ) -> Result<Option<PathBuf>, FsError> {
        let mut first = None;
        let mut missing = vec![path.to_owned()];
        while let Some(next) = missing.pop() {
            let error = match self.mkdir(&next, permissions).await {
                Ok(()) => {
                    first.get_or_insert(next);
                    continue;
                }
                Err(error) => error,
            };
            let ends = [Errno::ACCESS, Errno::NOSPC, Errno::NOTDIR, Errno::PERM];
            if ends.iter().any(|errno| error.is(*errno)) {
                return Err(error.at(path));
            }
            let above = lexical::dirname(&next);
            if error.is(Errno::NOENT)
                && above != next
                && !next.as_os_str().is_empty()
                && above != Path::new(".")
            {
                missing.push(next);
                missing.push(above);
                continue;
            }
            let stat = self.stat(&next).await;
            let stat = stat.map_err(|error| error.during("mkdir").at(path))?;
            if !stat.is_directory() {
                let errno = if error.is(Errno::EXIST) && !missing.is_empty() {
                    Errno::NOTDIR
                } else {
                    Errno::EXIST
                };
                return Err(FsError::new(errno, "mkdir", path));
            }
        }
        Ok(first)
    }

    /// Makes a directory that only its owner may enter, called `prefix` and six letters that nobody can foresee.
    pub async fn mkdtemp(&self, prefix: &Path) -> Result<PathBuf, FsError> {
        let mut tries = RANDOM_TRIES;
        loop {
            let path = lexical::extended(prefix, &random_letters());
            match self.mkdir(&path, 0o700).await {
                Ok(()) => return Ok(path),
                Err(error) if error.is(Errno::EXIST) && tries > 0 => tries -= 1,
                Err(error) => return Err(error.during("mkdtemp")),
            }
        }
    }
}

fn dirent(parent: &Path, entry: Entry) -> Dirent {
    let Entry { name, kind } = entry;
    Dirent {
        name,
        parent_path: parent.to_owned(),
        kind,
    }
}

/// The standard library seeds its hashers from the system's randomness.
fn random_letters() -> String {
    let mut random = RandomState::new().build_hasher().finish();
    let mut letter = || {
        let at = usize::try_from(random % ALPHABET.len() as u64).unwrap_or(0);
        random /= ALPHABET.len() as u64;
        char::from(ALPHABET[at])
    };
    (0..RANDOM_LETTERS).map(|_| letter()).collect()
}

/// For callers that want names only.
impl From<Dirent> for OsString {
    fn from(dirent: Dirent) -> Self {
        dirent.name
    }
}
