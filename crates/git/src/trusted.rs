//! The user's own repository. Its owner's configuration is trusted with the owner's rights, never with more.
//!
//! Only four kinds of commands ever run with its real `GIT_DIR`: listing and updating refs, taking in a finished
//! pack, and serving a fetch. None of them touches a work tree. Where Bulkhead is root and the repository belongs
//! to another user, they run as that user, so a repository can never borrow root's rights, and new objects belong
//! to its owner. Any other foreign owner is refused by name.

use std::{
    fs::{self, File},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    command::{Git, GitProgram, Identity},
    error::{Error, Refusal, Result},
    names::{Oid, RefName},
    objects::{Borrowed, ObjectFormat},
};

/// The longest one pack may take to be indexed.
pub(crate) const PACK_TIME: Duration = Duration::from_secs(30 * 60);
/// Packs of fewer objects are unpacked, as git itself does, so that small pushes do not pile up packs.
const UNPACK_BELOW: u32 = 100;
/// Larger packs are kept as they are: unpacking would compress everything again.
const UNPACK_BELOW_BYTES: u64 = 4 << 20;

/// A repository on this machine whose configuration its owner, a person, wrote.
#[derive(Debug, Clone)]
pub struct TrustedRepo {
    program: GitProgram,
    git_dir: PathBuf,
    /// The main checkout, where there is one.
    work_tree: Option<PathBuf>,
    identity: Option<Identity>,
    format: ObjectFormat,
}

/// A checkout of a branch: where it is, and the index that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkout {
    pub(crate) work_tree: PathBuf,
    pub(crate) git_dir: PathBuf,
}

impl TrustedRepo {
    /// Opens the repository at `path`: its work tree's root, its `.git`, or a bare directory.
    pub async fn open(program: &GitProgram, path: &Path) -> Result<Self> {
        let (git_dir, work_tree) = find_git_dir(path)?;
        let identity = owner_identity(&git_dir)?;
        let format = ObjectFormat::Sha1;
        let mut repo = Self {
            program: program.clone(),
            git_dir,
            work_tree,
            identity,
            format,
        };
        let settings = repo.git().args(["config", "-z", "--list"]).output().await?;
        for setting in String::from_utf8_lossy(&settings).split('\0') {
            match setting.split_once('\n') {
                Some(("extensions.objectformat", "sha256")) => repo.format = ObjectFormat::Sha256,
                Some(("core.bare", "true")) => repo.work_tree = None,
                Some(("core.worktree", path)) => repo.work_tree = Some(repo.git_dir.join(path)),
                _ => {}
            }
        }
        Ok(repo)
    }

    /// The directory that holds refs and objects.
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    pub(crate) const fn identity(&self) -> Option<Identity> {
        self.identity
    }

    pub(crate) const fn program(&self) -> &GitProgram {
        &self.program
    }

    pub(crate) const fn format(&self) -> ObjectFormat {
        self.format
    }

    pub(crate) fn borrowed(&self) -> Borrowed {
        let shallow = self.git_dir.join("shallow");
        Borrowed {
            objects: self.git_dir.join("objects"),
            format: self.format,
            shallow: shallow.exists().then_some(shallow),
            identity: self.identity,
        }
    }

    pub(crate) fn git(&self) -> Git {
        Git::new(&self.program, &self.git_dir).identity(self.identity)
    }

    /// The commit that a person's word for it names: a branch, a tag, `HEAD`, a full id. A branch comes before a tag
    /// of the same name.
    pub async fn resolve(&self, name: &str) -> Result<Oid> {
        if let Ok(branch) = RefName::from_branch(name)
            && let Some(tip) = self.tip(&branch).await?
            && branch.branch().is_some()
        {
            return Ok(tip);
        }
        let spec = format!("{name}^{{commit}}");
        let ended = self
            .git()
            .args([
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &spec,
            ])
            .run()
            .await?;
        match ended.code() {
            Some(0) => Ok(Oid::from_bytes(ended.success()?.trim_ascii())?),
            _ => Err(Refusal::NoSuchRevision {
                reference: name.to_owned(),
                repository: self.git_dir.display().to_string(),
            }
            .into()),
        }
    }

    /// Where a ref points now, `None` where it does not exist.
    pub async fn tip(&self, reference: &RefName) -> Result<Option<Oid>> {
        let ended = self
            .git()
            .args([
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                reference.as_str(),
            ])
            .run()
            .await?;
        match ended.code() {
            Some(0) => Ok(Some(Oid::from_bytes(ended.success()?.trim_ascii())?)),
            Some(1) => Ok(None),
            _ => Err(ended.failure()),
        }
    }

    /// All branches and tags with what they point at; a tag's peeled id comes with it.
    pub(crate) async fn refs(&self) -> Result<Vec<(RefName, Oid)>> {
        let format = "--format=%(objectname) %(refname)%0a%(*objectname) %(refname)";
        let out = self
            .git()
            .args(["for-each-ref", format, "refs/heads/", "refs/tags/"])
            .output()
            .await?;
        let text = String::from_utf8_lossy(&out);
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        // Names that are not UTF-8 or not well-formed are not served.
        Ok(pairs
            .filter_map(|(oid, name)| Some((name.parse().ok()?, oid.parse().ok()?)))
            .collect())
    }

    /// Moves a ref from `old` (zero: it must not exist) to `new`, or says where it is instead.
    pub(crate) async fn update_ref(&self, reference: &RefName, old: &Oid, new: &Oid) -> Result<()> {
        let input = format!("update {reference}\0{new}\0{old}\0");
        let ended = self
            .git()
            .args(["update-ref", "--no-deref", "-z", "--stdin"])
            .stdin(input)
            .run()
            .await?;
        if ended.code() == Some(0) {
            return Ok(());
        }
        let found = self.tip(reference).await?;
        if found.as_ref() == Some(new) {
            return Ok(());
        }
        let moved = found.as_ref().map_or(!old.is_zero(), |found| found != old);
        if moved {
            return Err(ref_moved(reference, old, found.as_ref()));
        }
        Err(ended.failure())
    }

    /// Takes in the objects of a pack that was already checked. They become reachable only by a ref update.
    pub(crate) async fn ingest(&self, pack: File, objects: u32) -> Result<()> {
        let size = pack
            .metadata()
            .map_err(Error::io("look at the size of a pack"))?
            .len();
        let verb: &[&str] = if objects < UNPACK_BELOW && size < UNPACK_BELOW_BYTES {
            &["unpack-objects", "-q"]
        } else {
            &["index-pack", "--stdin", "--fix-thin"]
        };
        self.git()
            .args(verb)
            .input(pack)
            .time(PACK_TIME)
            .output()
            .await
            .map(drop)
    }

    /// The checkout that holds this branch, where there is one: the main one or a linked worktree. A checkout whose
    /// rebase began on the branch holds it too.
    pub(crate) async fn checkout_of(&self, branch: &RefName) -> Result<Option<Checkout>> {
        if let Some(work_tree) = &self.work_tree
            && self.holds(&self.git_dir, branch).await?
        {
            return Ok(Some(Checkout {
                work_tree: work_tree.clone(),
                git_dir: self.git_dir.clone(),
            }));
        }
        let worktrees = self.git_dir.join("worktrees");
        let Ok(linked) = fs::read_dir(&worktrees) else {
            return Ok(None);
        };
        for entry in linked {
            let git_dir = entry
                .map_err(Error::io("list the repository's worktrees"))?
                .path();
            if let Some(work_tree) = linked_work_tree(&git_dir)
                && self.holds(&git_dir, branch).await?
            {
                return Ok(Some(Checkout { work_tree, git_dir }));
            }
        }
        Ok(None)
    }

    /// Asks git, because where `HEAD` is kept depends on how the repository stores refs.
    async fn holds(&self, git_dir: &Path, branch: &RefName) -> Result<bool> {
        for rebase in ["rebase-merge/head-name", "rebase-apply/head-name"] {
            if fs::read_to_string(git_dir.join(rebase))
                .is_ok_and(|name| name.trim() == branch.as_str())
            {
                return Ok(true);
            }
        }
        Ok(self.head_of(git_dir).await?.as_ref() == Some(branch))
    }

    /// The branch that the main checkout's `HEAD` names, `None` where it is on none.
    pub(crate) async fn head_branch(&self) -> Result<Option<RefName>> {
        self.head_of(&self.git_dir).await
    }

    async fn head_of(&self, git_dir: &Path) -> Result<Option<RefName>> {
        let git = Git::new(&self.program, git_dir).identity(self.identity);
        let ended = git.args(["symbolic-ref", "--quiet", "HEAD"]).run().await?;
        match ended.code() {
            Some(0) => Ok(String::from_utf8_lossy(ended.success()?.trim_ascii())
                .parse()
                .ok()),
            Some(1) => Ok(None),
            _ => Err(ended.failure()),
        }
    }
}

pub(crate) fn ref_moved(reference: &RefName, old: &Oid, found: Option<&Oid>) -> Error {
    let words = |oid: Option<&Oid>| oid.map_or_else(|| "nothing".to_owned(), Oid::to_string);
    Refusal::RefMoved {
        reference: reference.to_string(),
        expected: words(Some(old).filter(|oid| !oid.is_zero())),
        found: words(found),
    }
    .into()
}

fn linked_work_tree(git_dir: &Path) -> Option<PathBuf> {
    let file = fs::read(git_dir.join("gitdir")).ok()?;
    let dot_git = git_dir.join(Path::new(std::ffi::OsStr::from_bytes(
        file.trim_ascii_end(),
    )));
    dot_git
        .parent()
        .filter(|path| path.is_dir())
        .map(Path::to_owned)
}

/// Finds the directory of refs and objects, and the main checkout, without running git: nothing in the repository is
/// run.
fn find_git_dir(path: &Path) -> Result<(PathBuf, Option<PathBuf>)> {
    let refused = || Refusal::NotARepository {
        path: path.to_owned(),
    };
    let path = fs::canonicalize(path).map_err(|_| refused())?;
    let dot_git = path.join(".git");
    let found = if dot_git.is_dir() {
        dot_git.clone()
    } else if dot_git.is_file() {
        linked_git_dir(&path, &dot_git).ok_or_else(refused)?
    } else {
        path.clone()
    };
    let found = fs::canonicalize(found).map_err(|_| refused())?;
    if !(found.join("HEAD").exists() && found.join("objects").is_dir()) {
        return Err(refused().into());
    }
    let is_linked = dot_git.is_file() && found.join("worktrees").is_dir();
    let work_tree = match found.file_name() {
        _ if dot_git.exists() && !is_linked => Some(path),
        Some(name) if name == ".git" => found.parent().map(Path::to_owned),
        _ => None,
    };
    Ok((found, work_tree))
}

/// Follows a `.git` file (a linked worktree or a submodule) to the common directory.
fn linked_git_dir(root: &Path, dot_git: &Path) -> Option<PathBuf> {
    let text = fs::read(dot_git).ok()?;
    let target = text.strip_prefix(b"gitdir: ")?.trim_ascii_end();
    let git_dir = root.join(Path::new(std::ffi::OsStr::from_bytes(target)));
    match fs::read(git_dir.join("commondir")) {
        Ok(common) => Some(git_dir.join(Path::new(std::ffi::OsStr::from_bytes(
            common.trim_ascii_end(),
        )))),
        Err(_) => Some(git_dir),
    }
}

/// Whom commands on this repository run as. Git's own check of ownership would refuse root here; running as the
/// owner is the stronger answer, since it takes the rights away instead of asking for trust.
fn owner_identity(git_dir: &Path) -> Result<Option<Identity>> {
    let meta = fs::metadata(git_dir).map_err(Error::io(format!(
        "look at the owner of {}",
        git_dir.display()
    )))?;
    let me = rustix::process::geteuid().as_raw();
    match (me, meta.uid()) {
        (me, owner) if me == owner => Ok(None),
        (0, owner) => Ok(Some(Identity {
            uid: owner,
            gid: meta.gid(),
        })),
        (me, owner) => Err(Refusal::ForeignOwner {
            path: git_dir.to_owned(),
            owner,
            me,
        }
        .into()),
    }
}
