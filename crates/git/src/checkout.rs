//! The one place where the host changes a work tree: fast-forwarding a clean checkout of a person's repository.
//!
//! The checkout may hold files that an agent wrote, from an earlier landing. So git works with a private `GIT_DIR`
//! whose configuration is ours: no hooks, no file-system monitor, no filter or other program can be named there, and
//! only settings that say how bytes lie on disk are taken over from the repository.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    command::Git,
    diff::{ChangeKind, shown},
    error::{Error, Refusal, Result},
    names::{Oid, RefName},
    objects::{Objects, as_os},
    repository::Repository,
    trusted::Checkout,
};

/// Settings that a checkout needs to lie on disk as its owner has it. None of them names a program or a path.
const TAKEN_OVER: &[&str] = &[
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
];
/// Files in a checkout's own directory that say that somebody is in the middle of something.
const IN_PROGRESS: &[(&str, &str)] = &[
    (
        "index.lock",
        "is locked by another git command (index.lock)",
    ),
    ("MERGE_HEAD", "is in the middle of a merge"),
    ("CHERRY_PICK_HEAD", "is in the middle of a cherry-pick"),
    ("REVERT_HEAD", "is in the middle of a revert"),
    ("BISECT_LOG", "is in the middle of a bisection"),
    ("rebase-merge", "is in the middle of a rebase"),
    ("rebase-apply", "is in the middle of a rebase"),
];
const PATHS_NAMED: usize = 50;

/// A checkout of the target branch that holds nothing uncommitted.
pub(crate) struct CleanCheckout {
    at: Checkout,
    private: Objects,
    settings: Vec<String>,
}

impl CleanCheckout {
    /// Finds the checkout of `branch`, which is at `base`. A dirty or busy one is refused, with what is in the way.
    pub(crate) async fn find(
        repository: &Repository,
        branch: &RefName,
        base: &Oid,
    ) -> Result<Option<Self>> {
        let trusted = repository.trusted();
        let Some(at) = trusted.checkout_of(branch).await? else {
            return Ok(None);
        };
        let refused = |why: &str| Refusal::CheckoutNeedsMore {
            path: at.work_tree.clone(),
            why: why.to_owned(),
        };
        for (file, why) in IN_PROGRESS {
            if at.git_dir.join(file).symlink_metadata().is_ok() {
                return Err(refused(why).into());
            }
        }
        let split = fs::read_dir(&at.git_dir)
            .map_err(Error::io("look into the checkout's git directory"))?;
        if split.flatten().any(|entry| {
            entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(b"sharedindex.")
        }) {
            return Err(refused("uses a split index").into());
        }
        let private = repository.objects()?;
        let config = Git::new(trusted.program(), &at.git_dir).identity(trusted.identity());
        let all = config.args(["config", "-z", "--list"]).output().await?;
        let settings = taken_over(&all);
        if settings
            .iter()
            .any(|setting| setting == "core.sparsecheckout=true")
        {
            return Err(refused("is a sparse checkout").into());
        }
        let settings = settings
            .into_iter()
            .filter(|setting| !setting.starts_with("core.sparse"))
            .collect();
        let checkout = Self {
            at,
            private,
            settings,
        };
        checkout.must_be_clean(base).await?;
        Ok(Some(checkout))
    }

    fn git(&self) -> Git {
        let mut git = self.private.git();
        for setting in &self.settings {
            git = git.config(setting);
        }
        git.env("GIT_WORK_TREE", self.at.work_tree.as_os_str())
            .env(
                "GIT_INDEX_FILE",
                self.at.git_dir.join("index").into_os_string(),
            )
            .config("core.bare=false")
    }

    async fn must_be_clean(&self, base: &Oid) -> Result<()> {
        // Exit 1 says that some entries need an update, which the comparison names.
        self.git()
            .args(["update-index", "-q", "--refresh", "--ignore-submodules"])
            .run()
            .await?;
        let mut dirty = Vec::new();
        for scope in [&["--cached"][..], &[]] {
            let git =
                self.git()
                    .args(["diff-index", "-z", "--name-only", "--ignore-submodules=all"]);
            let out = git.args(scope).args([base.as_str()]).output().await?;
            dirty.extend(
                out.split(|&byte| byte == 0)
                    .filter(|path| !path.is_empty())
                    .map(shown),
            );
        }
        self.refuse_paths(dirty)
    }

    fn refuse_paths(&self, mut paths: Vec<String>) -> Result<()> {
        paths.sort();
        paths.dedup();
        paths.truncate(PATHS_NAMED);
        if paths.is_empty() {
            return Ok(());
        }
        Err(Refusal::DirtyCheckout {
            path: self.at.work_tree.clone(),
            paths,
        }
        .into())
    }

    /// Takes the files from one commit to another. Nothing changes where a file would be lost or a filter be needed.
    pub(crate) async fn forward(
        &self,
        repository: &Repository,
        from: &Oid,
        to: &Oid,
    ) -> Result<()> {
        for commit in [from, to] {
            self.must_need_no_filter(commit).await?;
        }
        self.must_overwrite_nothing(repository, from, to).await?;
        self.git()
            .args(["read-tree", "-m", "-u", from.as_str(), to.as_str()])
            .output()
            .await
            .map(drop)
    }

    /// A filter is a program that attributes name. None may run here, and without it the files would be wrong.
    async fn must_need_no_filter(&self, commit: &Oid) -> Result<()> {
        let mut texts = vec![fs::read(self.at.git_dir.join("info/attributes")).unwrap_or_default()];
        for entry in self.private.entries(commit, None).await? {
            let name = entry
                .path
                .rsplit(|&byte| byte == b'/')
                .next()
                .unwrap_or_default();
            if name.eq_ignore_ascii_case(b".gitattributes")
                && entry.size_bytes.is_some_and(|size| size > 0)
            {
                texts.push(self.private.blob(&entry.oid, 16 << 20).await?);
            }
        }
        if texts
            .iter()
            .any(|text| String::from_utf8_lossy(text).contains("filter="))
        {
            let why = "holds files that need a filter program, such as git-lfs,".to_owned();
            return Err(Refusal::CheckoutNeedsMore {
                path: self.at.work_tree.clone(),
                why,
            }
            .into());
        }
        Ok(())
    }

    /// Files that git does not know are the person's own; ignored ones too, which git itself would overwrite.
    async fn must_overwrite_nothing(
        &self,
        repository: &Repository,
        from: &Oid,
        to: &Oid,
    ) -> Result<()> {
        let diff = repository.phase_diff(from, to, 0).await?;
        let known: HashSet<&[u8]> = diff
            .files
            .iter()
            .filter(|file| file.old_mode != 0)
            .map(|file| &file.old_path[..])
            .collect();
        let arrives = |kind| {
            matches!(
                kind,
                ChangeKind::Added | ChangeKind::Renamed | ChangeKind::Copied
            )
        };
        let mut lost = Vec::new();
        for file in diff.files.iter().filter(|file| arrives(file.kind)) {
            if let Some(path) = in_the_way(&self.at.work_tree, &file.path)
                && !known.contains(&path[..])
            {
                lost.push(shown(&path));
            }
        }
        self.refuse_paths(lost)
    }
}

/// The first part of `path` that exists in the work tree and is no directory, or the whole path where it exists.
fn in_the_way(work_tree: &Path, path: &[u8]) -> Option<Vec<u8>> {
    let ends = path
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| at);
    for end in ends.chain([path.len()]) {
        let part: PathBuf = work_tree.join(as_os(&path[..end]));
        match part.symlink_metadata() {
            Ok(meta) if meta.is_dir() && end < path.len() => {}
            Ok(_) => return Some(path[..end].to_vec()),
            Err(_) => return None,
        }
    }
    None
}

/// `KEY\nVALUE\0` records; a key without a value means true.
fn taken_over(all: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(all);
    let pairs = text.split('\0').filter(|record| !record.is_empty());
    pairs
        .map(|record| record.split_once('\n').unwrap_or((record, "true")))
        .filter(|(key, _)| TAKEN_OVER.contains(key) || *key == "core.sparsecheckout")
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}
