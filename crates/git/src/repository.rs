//! One repository of a run, wherever it is: what the control plane does with it by itself.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use aws_lc_rs::digest;
use tokio::sync::MutexGuard;

use crate::{
    command::{Git, GitProgram},
    error::{Error, Refusal, Result},
    hold::{self, Held, Hold},
    ledger::{Push, Recovery},
    names::{Oid, RefName},
    objects::{self, Objects, TreeEntry},
    trusted::{TrustedRepo, ref_moved},
    upstream::Upstream,
};

/// Where a run's repository is.
#[derive(Debug, Clone)]
pub enum Source {
    /// A repository of a user of this machine; runs push straight into it.
    Local(PathBuf),
    /// A repository elsewhere, mirrored below the data directory.
    Remote(Box<Upstream>),
}

/// A repository that runs work on. Cheap to clone; whoever opens the same one in this process shares one lock for
/// changes.
#[derive(Debug, Clone)]
pub struct Repository {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    trusted: TrustedRepo,
    upstream: Option<Upstream>,
    scratch: PathBuf,
    hold: Arc<Hold>,
}

impl Repository {
    /// Opens a repository. `git_data` is the data directory's `git/`: mirrors and private directories live there.
    pub async fn open(program: &GitProgram, source: &Source, git_data: &Path) -> Result<Self> {
        let scratch = git_data.join("tmp");
        fs::create_dir_all(&scratch).map_err(Error::io(format!("make {}", scratch.display())))?;
        let (trusted, upstream, hold) = match source {
            Source::Local(path) => {
                let trusted = TrustedRepo::open(program, path).await?;
                let hold = hold::shared(trusted.git_dir());
                (trusted, None, hold)
            }
            Source::Remote(upstream) => {
                let (mirror, hold) = open_mirror(program, upstream, git_data).await?;
                (mirror, Some((**upstream).clone()), hold)
            }
        };
        Ok(Self {
            inner: Arc::new(Inner {
                trusted,
                upstream,
                scratch,
                hold,
            }),
        })
    }

    pub fn trusted(&self) -> &TrustedRepo {
        &self.inner.trusted
    }

    pub fn is_remote(&self) -> bool {
        self.inner.upstream.is_some()
    }

    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        self.inner.upstream.as_ref()
    }

    pub(crate) fn objects(&self) -> Result<Objects> {
        Objects::over(
            self.trusted().program(),
            &self.inner.scratch,
            &self.trusted().borrowed(),
        )
    }

    pub(crate) async fn publish_lock(&self) -> MutexGuard<'_, ()> {
        self.inner.hold.change.lock().await
    }

    /// Brings a mirror up to date. Nothing to do for a local repository.
    pub async fn refresh(&self) -> Result<()> {
        let Some(upstream) = self.upstream() else {
            return Ok(());
        };
        let _changing = self.publish_lock().await;
        upstream.fetch_into(self.trusted(), self.lock()?).await
    }

    /// The mirror's lock, for commands that may outlive this process.
    fn lock(&self) -> Result<Option<File>> {
        self.inner.hold.lock()
    }

    /// Where private directories and unfinished objects go.
    pub(crate) fn scratch(&self) -> &Path {
        &self.inner.scratch
    }

    /// The commit that `name` (a branch, a tag, `HEAD`, a full id) stands for now; a mirror is refreshed first.
    pub async fn resolve(&self, name: &str) -> Result<Oid> {
        self.refresh().await?;
        self.trusted().resolve(name).await
    }

    /// A file as `commit` has it, `None` where it has none. Links are not followed: their target is refused as
    /// content, because a trusted commit's file must be what its path says.
    pub async fn read_file(
        &self,
        commit: &Oid,
        path: &str,
        limit_bytes: u64,
    ) -> Result<Option<Vec<u8>>> {
        let objects = self.objects()?;
        let entries = objects
            .entries(commit, Some(path.trim_start_matches("./").as_bytes()))
            .await?;
        match entries.first() {
            Some(TreeEntry {
                mode: 0o120_000, ..
            }) => Err(Refusal::SymlinkedSettings {
                path: path.to_owned(),
            }
            .into()),
            Some(entry) if entry.mode & 0o170_000 == 0o100_000 => {
                objects.blob(&entry.oid, limit_bytes).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The message of a commit, whose writer may be an agent: `None` where the commit is too large to be one that
    /// Bulkhead made.
    pub async fn commit_message(&self, commit: &Oid) -> Result<Option<String>> {
        match self.objects()?.raw_commit(commit).await {
            Ok(raw) => {
                let text = String::from_utf8_lossy(&raw);
                Ok(text
                    .split_once("\n\n")
                    .map(|(_, message)| message.to_owned()))
            }
            Err(Error::TooLarge { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the run's branch at `commit`, upstream first. Making it again at the same commit changes nothing.
    pub async fn create_branch(&self, branch: &RefName, commit: &Oid) -> Result<()> {
        let _changing = self.publish_lock().await;
        if let Some(checkout) = self.trusted().checkout_of(branch).await? {
            let reference = branch.to_string();
            return Err(Refusal::CheckedOut {
                reference,
                path: checkout.work_tree,
            }
            .into());
        }
        let nothing = Oid::zero_like(commit);
        match self.authoritative_tip(branch).await? {
            Some(at) if at == *commit => {}
            Some(at) => return Err(ref_moved(branch, &nothing, Some(&at))),
            None => {
                if let Some(upstream) = self.upstream() {
                    upstream
                        .push(self.trusted(), branch, &nothing, commit, self.lock()?)
                        .await?;
                }
            }
        }
        let here = self.trusted().tip(branch).await?.unwrap_or(nothing);
        self.trusted().update_ref(branch, &here, commit).await
    }

    /// Where a branch is now, as the place that owns it says: the upstream, or the local repository.
    pub async fn authoritative_tip(&self, branch: &RefName) -> Result<Option<Oid>> {
        match self.upstream() {
            Some(upstream) => upstream.tip(self.trusted(), branch).await,
            None => self.trusted().tip(branch).await,
        }
    }

    /// Settles a push that was recorded before a crash, by looking at the branch (R14). For a mirror, a push that
    /// landed upstream is brought in. A push that is still at work in this process is waited for.
    pub async fn recover(&self, push: &Push) -> Result<Recovery> {
        let _changing = self.publish_lock().await;
        let at = self.authoritative_tip(&push.grant.branch).await?;
        if at.as_ref() == Some(&push.new) {
            if let Some(upstream) = self.upstream() {
                upstream.fetch_into(self.trusted(), self.lock()?).await?;
            }
            return Ok(Recovery::Landed);
        }
        if at.as_ref() == Some(&push.old) {
            return Ok(Recovery::NotLanded);
        }
        Ok(Recovery::Foreign { at })
    }

    /// Puts a checked pack's objects in, then moves the ref: upstream first, so that what the sandbox hears of as
    /// done is done where it counts. The caller holds the publish lock.
    pub(crate) async fn publish(
        &self,
        branch: &RefName,
        old: &Oid,
        new: &Oid,
        pack: Option<(File, u32)>,
    ) -> Result<()> {
        if let Some((file, objects)) = pack {
            self.trusted().ingest(file, objects).await?;
        }
        if let Some(upstream) = self.upstream() {
            let lock = self.lock()?;
            upstream
                .push(self.trusted(), branch, old, new, lock)
                .await?;
        }
        self.trusted().update_ref(branch, old, new).await
    }

    /// Removes private directories that a killed process left behind. Call it before anything else is opened.
    pub fn clear_scratch(git_data: &Path) -> Result<()> {
        objects::clear_shared();
        let scratch = git_data.join("tmp");
        match fs::remove_dir_all(&scratch) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", scratch.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

async fn open_mirror(
    program: &GitProgram,
    upstream: &Upstream,
    git_data: &Path,
) -> Result<(TrustedRepo, Arc<Hold>)> {
    let id = digest::digest(&digest::SHA256, upstream.url().as_str().as_bytes());
    let name: String = id
        .as_ref()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let dir = git_data.join(format!("{name}.git"));
    let (hold, held) = hold::exclusive(&dir, &git_data.join(format!("{name}.lock"))).await?;
    // Whoever comes second waits here until the first has made the mirror.
    let changing = hold.change.lock().await;
    if !dir.join("HEAD").exists() {
        let fresh = dir.with_extension("new");
        // A half-made mirror of a killed process is worthless and in the way.
        let _ = fs::remove_dir_all(&fresh);
        Git::new(program, &fresh)
            .args(["init", "--quiet", "--bare", "--template="])
            .output()
            .await?;
        fs::rename(&fresh, &dir)
            .map_err(Error::io(format!("make the mirror {}", dir.display())))?;
    }
    if held == Held::First {
        remove_stale_locks(&dir, 0);
    }
    let mirror = TrustedRepo::open(program, &dir).await?;
    drop(changing);
    Ok((mirror, hold))
}

/// A git that was killed leaves `*.lock` files, and every later command fails on them (case 39). The mirror is ours
/// and locked, so nobody else can be at work here.
fn remove_stale_locks(dir: &Path, depth: usize) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && depth < 16 && entry.file_name() != "objects" {
            remove_stale_locks(&path, depth + 1);
        } else if !is_dir && path.extension().is_some_and(|end| end == "lock") {
            let _ = fs::remove_file(&path);
        }
    }
}
