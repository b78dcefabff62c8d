//! Reading history from objects only: a private `GIT_DIR` of ours that borrows another repository's objects.
//!
//! Nothing that an agent or a user wrote configures what runs here. The directory holds our own configuration, no
//! refs and no work tree; the borrowed repository contributes bytes (packs and loose objects) and nothing else.
//! This is the strongest form of R16: there is no file in the agent's reach whose content is a program to run.

use std::{
    fs,
    os::unix::fs::lchown,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    command::{Git, GitProgram, Identity},
    error::{Error, Result},
    names::Oid,
};

/// Where a private directory for another user's commands is made: our own data directory is closed to that user.
const SHARED_SCRATCH: &str = "/tmp";
/// Private directories begin so; the number of the process that made them follows.
const PREFIX: &str = "bulkhead-objects-";
/// Entries of one tree that are listed; a repository with more is refused instead of read.
const TREE_BYTES: u64 = 256 << 20;

/// The hash function of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    fn config(self) -> &'static str {
        match self {
            Self::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
            Self::Sha256 => {
                "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n"
            }
        }
    }
}

/// What a private `GIT_DIR` borrows.
#[derive(Debug, Clone)]
pub(crate) struct Borrowed {
    pub(crate) objects: PathBuf,
    pub(crate) format: ObjectFormat,
    /// The file that says where the history of a shallow repository ends.
    pub(crate) shallow: Option<PathBuf>,
    /// The lender's owner, where that is not us: its objects are then read with its owner's rights only.
    pub(crate) identity: Option<Identity>,
}

/// One entry of a tree. The path is bytes, as git stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    pub mode: u32,
    pub oid: Oid,
    /// None for trees and submodules.
    pub size_bytes: Option<u64>,
    pub path: Vec<u8>,
}

/// A private repository that borrows objects. New objects go into it, not into the lender; it is removed on drop.
#[derive(Debug)]
pub(crate) struct Objects {
    program: GitProgram,
    dir: TempDir,
    borrowed: Borrowed,
}

impl Objects {
    pub(crate) fn over(program: &GitProgram, scratch: &Path, borrowed: &Borrowed) -> Result<Self> {
        let scratch = borrowed
            .identity
            .map_or(scratch, |_| Path::new(SHARED_SCRATCH));
        let doing = || format!("make a private git directory below {}", scratch.display());
        fs::create_dir_all(scratch).map_err(Error::io(doing()))?;
        let dir = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .tempdir_in(scratch)
            .map_err(Error::io(doing()))?;
        fill(dir.path(), borrowed).map_err(Error::io(doing()))?;
        if let Some(identity) = borrowed.identity {
            give_to(dir.path(), identity)
                .map_err(Error::io("hand a private git directory to its user"))?;
        }
        Ok(Self {
            program: program.clone(),
            dir,
            borrowed: borrowed.clone(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) const fn format(&self) -> ObjectFormat {
        self.borrowed.format
    }

    pub(crate) fn git(&self) -> Git {
        let git = Git::new(&self.program, self.dir.path()).identity(self.borrowed.identity);
        match &self.borrowed.shallow {
            Some(file) => git.env("GIT_SHALLOW_FILE", file.as_os_str()),
            None => git,
        }
    }

    /// The blob's bytes, where it is no larger than `limit_bytes`.
    pub(crate) async fn blob(&self, oid: &Oid, limit_bytes: u64) -> Result<Vec<u8>> {
        self.git()
            .args(["cat-file", "blob", oid.as_str()])
            .output_bytes(limit_bytes)
            .output()
            .await
    }

    pub(crate) async fn raw_commit(&self, oid: &Oid) -> Result<Vec<u8>> {
        self.git()
            .args(["cat-file", "commit", oid.as_str()])
            .output_bytes(1 << 20)
            .output()
            .await
    }

    pub(crate) async fn tree_of(&self, commit: &Oid) -> Result<Oid> {
        let name = format!("{commit}^{{tree}}");
        let out = self
            .git()
            .args(["rev-parse", "--verify", "--end-of-options", &name])
            .output()
            .await?;
        Ok(Oid::from_bytes(out.trim_ascii())?)
    }

    pub(crate) async fn has_commit(&self, oid: &Oid) -> Result<bool> {
        let name = format!("{oid}^{{commit}}");
        Ok(self
            .git()
            .args(["cat-file", "-e", &name])
            .run()
            .await?
            .code()
            == Some(0))
    }

    /// Every entry below the commit's root, or below `path` only.
    pub(crate) async fn entries(
        &self,
        commit: &Oid,
        path: Option<&[u8]>,
    ) -> Result<Vec<TreeEntry>> {
        let mut git = self.git().args(["ls-tree", "-z", "-l", "--full-tree"]);
        git = match path {
            Some(path) => git.args([commit.as_str(), "--"]).args([as_os(path)]),
            None => git.args(["-r", commit.as_str()]),
        };
        parse_tree(&git.output_bytes(TREE_BYTES).output().await?)
    }

    pub(crate) async fn is_ancestor(&self, old: &Oid, new: &Oid) -> Result<bool> {
        let ended = self
            .git()
            .args(["merge-base", "--is-ancestor", old.as_str(), new.as_str()])
            .run()
            .await?;
        match ended.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(ended.failure()),
        }
    }

    /// The pack that was indexed into this directory, where there is one.
    pub(crate) fn pack(&self) -> Result<Option<PathBuf>> {
        let dir = self.path().join("objects/pack");
        let entries = fs::read_dir(&dir).map_err(Error::io("look for the indexed pack"))?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(paths
            .into_iter()
            .find(|path| path.extension().is_some_and(|end| end == "pack")))
    }

    /// Writes one object of the given type and returns its id. Git checks its form.
    pub(crate) async fn write(&self, kind: &str, bytes: Vec<u8>) -> Result<Oid> {
        let out = self
            .git()
            .args(["hash-object", "-w", "--stdin", "-t", kind])
            .stdin(bytes)
            .output()
            .await?;
        Ok(Oid::from_bytes(out.trim_ascii())?)
    }
}

/// Removes private directories for other users' commands that killed processes left behind.
pub(crate) fn clear_shared() {
    let Ok(entries) = fs::read_dir(SHARED_SCRATCH) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let maker = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let is_left =
            maker.is_some_and(|maker: u32| !Path::new(&format!("/proc/{maker}")).exists());
        // What another user made under such a name is that user's, and stays where we may not remove it.
        if is_left && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::debug!(%error, path = %entry.path().display(), "a private directory stays");
        }
    }
}

fn give_to(dir: &Path, identity: Identity) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_to(&entry.path(), identity)?;
        } else {
            lchown(entry.path(), Some(identity.uid), Some(identity.gid))?;
        }
    }
    lchown(dir, Some(identity.uid), Some(identity.gid))
}

fn fill(dir: &Path, borrowed: &Borrowed) -> std::io::Result<()> {
    fs::create_dir_all(dir.join("objects/info"))?;
    fs::create_dir_all(dir.join("objects/pack"))?;
    fs::create_dir_all(dir.join("refs"))?;
    fs::write(dir.join("HEAD"), "ref: refs/heads/none\n")?;
    fs::write(dir.join("config"), borrowed.format.config())?;
    let mut alternates = quoted(borrowed.objects.as_os_str());
    alternates.push(b'\n');
    fs::write(dir.join("objects/info/alternates"), alternates)
}

/// A path as git reads it in `info/alternates`: quoted where a quote or newline in it would be misread.
fn quoted(path: &std::ffi::OsStr) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    let bytes = path.as_bytes();
    if !bytes
        .iter()
        .any(|byte| matches!(byte, b'"' | b'\\' | 0..32))
        && !bytes.starts_with(b"#")
    {
        return bytes.to_vec();
    }
    let mut out = vec![b'"'];
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..32 => out.extend(format!("\\{byte:03o}").bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
    out
}

pub(crate) fn as_os(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

/// Parses `ls-tree -z -l`: `MODE TYPE OID SIZE\tPATH\0`.
fn parse_tree(out: &[u8]) -> Result<Vec<TreeEntry>> {
    out.split(|&byte| byte == 0)
        .filter(|record| !record.is_empty())
        .map(parse_entry)
        .collect()
}

fn parse_entry(record: &[u8]) -> Result<TreeEntry> {
    let bad = || Error::Answer {
        command: "ls-tree".to_owned(),
        what: String::from_utf8_lossy(record).into_owned(),
    };
    let tab = record
        .iter()
        .position(|&byte| byte == b'\t')
        .ok_or_else(bad)?;
    let head = std::str::from_utf8(&record[..tab]).map_err(|_| bad())?;
    let mut words = head.split_ascii_whitespace();
    let (Some(mode), Some(_), Some(oid), Some(size)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad());
    };
    Ok(TreeEntry {
        mode: u32::from_str_radix(mode, 8).map_err(|_| bad())?,
        oid: oid.parse()?,
        size_bytes: size.parse().ok(),
        path: record[tab + 1..].to_vec(),
    })
}
