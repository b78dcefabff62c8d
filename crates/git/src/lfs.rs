//! LFS objects: which a commit needs, and the store of a local repository that holds them.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{Context, SHA256};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::{
    diff::shown,
    error::{Error, Refusal, Result},
    lfs_remote::{Operation, RemoteLfs, Wanted},
    objects::{Objects, TreeEntry},
    repository::Repository,
    submodules::ServedSubmodule,
    trusted::TrustedRepo,
};

/// Pointers are tiny text files that begin so.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\n";
const POINTER_BYTES: u64 = 1024;
/// Objects in one question to a server; common servers take this many.
const ASKED_AT_ONCE: usize = 100;

/// The SHA-256 of an LFS object's content, as pointers name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LfsOid(String);

impl LfsOid {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 64 && text.bytes().all(hex)).then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn directory(&self) -> String {
        format!("{}/{}", &self.0[..2], &self.0[2..4])
    }
}

/// The LFS store of a local repository.
#[derive(Debug, Clone)]
pub(crate) struct LfsStore {
    root: PathBuf,
}

impl LfsStore {
    pub(crate) fn of(repo: &TrustedRepo) -> Self {
        Self {
            root: repo.git_dir().join("lfs/objects"),
        }
    }

    /// Opens an object. No link below the store is followed: its owner could point one at a file that only we may
    /// read.
    pub(crate) fn open(&self, oid: &LfsOid) -> Option<(File, u64)> {
        let root = File::open(&self.root).ok()?;
        let path = format!("{}/{}", oid.directory(), oid.as_str());
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve).ok()?);
        let meta = file.metadata().ok()?;
        meta.is_file().then_some((file, meta.len()))
    }

    /// Begins to take in an object: the caller writes its bytes and hands them to [`Incoming::keep`].
    pub(crate) fn receive(&self, oid: &LfsOid) -> io::Result<Incoming> {
        let dir = self.root.join(oid.directory());
        std::fs::create_dir_all(&dir)?;
        let file = tempfile::Builder::new()
            .prefix("incoming-")
            .tempfile_in(&dir)?;
        Ok(Incoming::into(file, oid, dir.join(oid.as_str())))
    }
}

/// An object that is coming in. Dropped before it is whole, it leaves nothing behind.
pub(crate) struct Incoming {
    file: tempfile::NamedTempFile,
    hash: Context,
    to: PathBuf,
    oid: LfsOid,
}

impl Incoming {
    fn into(file: tempfile::NamedTempFile, oid: &LfsOid, to: PathBuf) -> Self {
        Self {
            file,
            hash: Context::new(&SHA256),
            to,
            oid: oid.clone(),
        }
    }

    /// Begins to take in an object that goes on elsewhere once it is whole ([`Incoming::checked`]).
    pub(crate) fn below(scratch: &Path, oid: &LfsOid) -> io::Result<Self> {
        let file = tempfile::Builder::new()
            .prefix("lfs-")
            .tempfile_in(scratch)?;
        Ok(Self::into(file, oid, PathBuf::new()))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        io::Write::write_all(&mut self.file, bytes)
    }

    /// Keeps the object where its content is what its name says. `false` where it is not.
    pub(crate) fn keep(self) -> io::Result<bool> {
        let to = self.to.clone();
        let Some(file) = self.checked() else {
            return Ok(false);
        };
        file.as_file().sync_all()?;
        file.persist(to)?;
        Ok(true)
    }

    /// The file, where its content is what its name says.
    pub(crate) fn checked(self) -> Option<tempfile::NamedTempFile> {
        let sum: String = self
            .hash
            .finish()
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        (sum == self.oid.as_str()).then_some(self.file)
    }
}

/// Whether the commit keeps files in LFS. All its objects must then be at hand.
pub(crate) async fn check(
    repository: &Repository,
    objects: &Objects,
    entries: &[TreeEntry],
) -> Result<bool> {
    if !uses_lfs(objects, entries).await? {
        return Ok(false);
    }
    let found = pointers(objects, entries).await?;
    let Some(upstream) = repository.upstream() else {
        let store = LfsStore::of(repository.trusted());
        let missing = found
            .into_iter()
            .find(|(_, wanted)| store.open(&wanted.oid).is_none());
        return missing.map_or(Ok(true), |(path, wanted)| Err(not_there(path, wanted)));
    };
    match (upstream.lfs(), found.first()) {
        (Some(lfs), _) => offered(&lfs, &found).await.map(|()| true),
        (None, None) => Ok(true),
        (None, Some((path, _))) => Err(Refusal::LfsRemote { path: path.clone() }.into()),
    }
}

fn not_there(path: String, wanted: Wanted) -> Error {
    let oid = wanted.oid.0;
    Refusal::LfsObjectMissing { path, oid }.into()
}

/// Asks a remote repository's LFS server whether it has them all.
async fn offered(lfs: &RemoteLfs, found: &[(String, Wanted)]) -> Result<()> {
    for some in found.chunks(ASKED_AT_ONCE) {
        let wanted: Vec<Wanted> = some.iter().map(|(_, wanted)| wanted.clone()).collect();
        let offers = lfs.batch(Operation::Download, &wanted).await?;
        let has = |wanted: &Wanted| {
            offers.iter().any(|offer| {
                let place = offer.actions.as_ref().and_then(|all| all.download.as_ref());
                offer.oid == wanted.oid.as_str() && place.is_some()
            })
        };
        if let Some((path, wanted)) = some.iter().find(|(_, wanted)| !has(wanted)) {
            return Err(not_there(path.clone(), wanted.clone()));
        }
    }
    Ok(())
}

/// LFS in a submodule would need a server of its own in the sandbox's settings, which is not offered.
pub(crate) async fn refuse_in_submodule(served: &ServedSubmodule) -> Result<()> {
    let objects = served.repository.objects()?;
    let Some(commit) = served.commits.first() else {
        return Ok(());
    };
    let entries = objects.entries(commit, None).await?;
    if uses_lfs(&objects, &entries).await?
        && let Some((path, _)) = pointers(&objects, &entries).await?.into_iter().next()
    {
        return Err(Refusal::LfsInSubmodule {
            path,
            url: served.inside_url.clone(),
        }
        .into());
    }
    Ok(())
}

async fn uses_lfs(objects: &Objects, entries: &[TreeEntry]) -> Result<bool> {
    let attributes = |entry: &&TreeEntry| {
        entry.path.rsplit(|&byte| byte == b'/').next() == Some(b".gitattributes")
            && entry.size_bytes.is_some()
    };
    for entry in entries.iter().filter(attributes) {
        let text = objects.blob(&entry.oid, 16 << 20).await?;
        if String::from_utf8_lossy(&text).contains("filter=lfs") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The pointers of a commit, by path. All small files are read in one go.
async fn pointers(objects: &Objects, entries: &[TreeEntry]) -> Result<Vec<(String, Wanted)>> {
    let small: Vec<&TreeEntry> = entries
        .iter()
        .filter(|entry| entry.size_bytes.is_some_and(|size| size < POINTER_BYTES))
        .collect();
    let names = small.iter().fold(String::new(), |names, entry| {
        names + entry.oid.as_str() + "\n"
    });
    let git = objects
        .git()
        .args(["cat-file", "--batch", "--buffer"])
        .stdin(names);
    let out = git.output_bytes(1 << 30).output().await?;
    let mut rest = &out[..];
    let mut found = Vec::new();
    for entry in small {
        let blob = next_blob(&mut rest).ok_or_else(|| Error::Answer {
            command: "cat-file --batch".to_owned(),
            what: shown(&entry.path),
        })?;
        if let Some(wanted) = pointer(blob) {
            found.push((shown(&entry.path), wanted));
        }
    }
    Ok(found)
}

/// `OID blob SIZE\nBYTES\n`.
fn next_blob<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let head = std::str::from_utf8(&rest[..end]).ok()?;
    let size: usize = head.rsplit(' ').next()?.parse().ok()?;
    let blob = rest.get(end + 1..end + 1 + size)?;
    *rest = rest.get(end + 2 + size..)?;
    Some(blob)
}

fn pointer(mut blob: &[u8]) -> Option<Wanted> {
    if !blob.starts_with(POINTER) {
        return None;
    }
    let mut text = String::new();
    blob.read_to_string(&mut text).ok()?;
    let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
    Some(Wanted {
        oid: LfsOid::parse(field("oid sha256:")?)?,
        size: field("size ")?.parse().ok()?,
    })
}
