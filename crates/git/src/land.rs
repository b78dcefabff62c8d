//! Landing: bringing a run's branch into a branch that may have moved, without running anything of it (R15).
//!
//! Merges and rebases happen on objects, in a private directory; no work tree is needed. Only when the target branch is
//! checked out does a work tree change, and then by a fast-forward whose configuration is ours (see `checkout`).

use std::{fs::File, io::Write as _};

use serde::{Deserialize, Serialize};

use crate::{
    checkout::CleanCheckout,
    error::{Error, Refusal, Result},
    names::{Oid, RefName},
    objects::Objects,
    repository::Repository,
};

/// The most commits that one rebase replays.
const REPLAYED: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LandStyle {
    /// Fast-forward where possible, else a merge commit.
    Merge,
    /// The run's commits on top of the target, authors kept.
    Rebase,
}

/// What to land, and as whom.
#[derive(Debug, Clone)]
pub struct LandRequest {
    pub branch: RefName,
    /// The commit of `branch` that was seen and approved; where the branch is elsewhere, nothing happens.
    pub expected: Oid,
    pub into: RefName,
    pub style: LandStyle,
    /// The subject of a merge commit.
    pub message: String,
    pub committer_name: String,
    pub committer_email: String,
    /// Seconds since 1970, for new commits.
    pub now_s: i64,
}

/// How a landing ended, where it was not refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Landed {
    /// `into` is now at `commit`.
    Moved { commit: Oid, checkout_updated: bool },
    /// `into` already holds the branch.
    AlreadyThere { commit: Oid },
    /// Nothing changed: these files differ on both sides. For people to resolve.
    Conflicts { paths: Vec<String> },
}

enum Merged {
    Commit(Oid),
    Conflicts(Vec<String>),
}

impl Repository {
    /// Lands a branch. Either everything it says happened, or nothing did.
    pub async fn land(&self, request: &LandRequest) -> Result<Landed> {
        self.refresh().await?;
        let _changing = self.publish_lock().await;
        let (branch, base) = self.both_tips(request).await?;
        let checkout = CleanCheckout::find(self, &request.into, &base).await?;
        let objects = self.objects()?;
        if objects.is_ancestor(&branch, &base).await? {
            return Ok(Landed::AlreadyThere { commit: base });
        }
        let merged = if objects.is_ancestor(&base, &branch).await? {
            Merged::Commit(branch.clone())
        } else {
            match request.style {
                LandStyle::Merge => merge(&objects, request, &base, &branch).await?,
                LandStyle::Rebase => rebase(&objects, request, &base, &branch).await?,
            }
        };
        match merged {
            Merged::Conflicts(paths) => Ok(Landed::Conflicts { paths }),
            Merged::Commit(commit) => {
                let pack = pack(&objects, &commit, &[&base, &branch]).await?;
                self.move_target(request, &base, &commit, checkout, pack)
                    .await
            }
        }
    }

    async fn both_tips(&self, request: &LandRequest) -> Result<(Oid, Oid)> {
        let missing = |name: &RefName| Refusal::NoSuchRevision {
            reference: name.to_string(),
            repository: self.trusted().git_dir().display().to_string(),
        };
        let branch = self
            .trusted()
            .tip(&request.branch)
            .await?
            .ok_or_else(|| missing(&request.branch))?;
        if branch != request.expected {
            return Err(crate::trusted::ref_moved(
                &request.branch,
                &request.expected,
                Some(&branch),
            ));
        }
        let base = self
            .trusted()
            .tip(&request.into)
            .await?
            .ok_or_else(|| missing(&request.into))?;
        Ok((branch, base))
    }

    async fn move_target(
        &self,
        request: &LandRequest,
        base: &Oid,
        commit: &Oid,
        checkout: Option<CleanCheckout>,
        pack: Option<(File, u32)>,
    ) -> Result<Landed> {
        let Some(checkout) = checkout else {
            self.publish(&request.into, base, commit, pack).await?;
            return Ok(Landed::Moved {
                commit: commit.clone(),
                checkout_updated: false,
            });
        };
        if let Some((file, count)) = pack {
            self.trusted().ingest(file, count).await?;
        }
        checkout.forward(self, base, commit).await?;
        if let Err(error) = self.publish(&request.into, base, commit, None).await {
            // Somebody moved the branch at this very moment: the files go back to what it was.
            checkout.forward(self, commit, base).await?;
            return Err(error);
        }
        Ok(Landed::Moved {
            commit: commit.clone(),
            checkout_updated: true,
        })
    }
}

async fn merge(
    objects: &Objects,
    request: &LandRequest,
    base: &Oid,
    branch: &Oid,
) -> Result<Merged> {
    let tree = match merge_trees(objects, base, branch).await? {
        Merged::Commit(tree) => tree,
        conflicts => return Ok(conflicts),
    };
    let who = committer(request);
    let commit = format!(
        "tree {tree}\nparent {base}\nparent {branch}\nauthor {who}\ncommitter {who}\n\n{}\n",
        request.message.trim_end()
    );
    Ok(Merged::Commit(
        objects.write("commit", commit.into_bytes()).await?,
    ))
}

/// Replays each of the branch's own commits. Each becomes a three-way merge of trees whose base is its parent.
async fn rebase(
    objects: &Objects,
    request: &LandRequest,
    base: &Oid,
    branch: &Oid,
) -> Result<Merged> {
    let range = format!("{base}..{branch}");
    let out = objects
        .git()
        .args(["rev-list", "--reverse", "--topo-order", "--parents", &range])
        .output()
        .await?;
    let text = String::from_utf8_lossy(&out);
    let commits: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    if commits.iter().any(|line| line.len() != 2) || commits.len() > REPLAYED {
        return Err(Refusal::MergesInRebase.into());
    }
    let mut onto = base.clone();
    for line in commits {
        let (commit, parent) = (line[0].parse()?, line[1].parse()?);
        match replay(objects, request, &commit, &parent, &onto).await? {
            Merged::Commit(next) => onto = next,
            conflicts => return Ok(conflicts),
        }
    }
    Ok(Merged::Commit(onto))
}

async fn replay(
    objects: &Objects,
    request: &LandRequest,
    commit: &Oid,
    parent: &Oid,
    onto: &Oid,
) -> Result<Merged> {
    // Two made-up commits with the true parent's tree below them: git then takes that tree as the merge's base. It
    // works on every git that can merge without a work tree.
    let root = stand_in(objects, &objects.tree_of(parent).await?, None).await?;
    let ours_tree = objects.tree_of(onto).await?;
    let ours = stand_in(objects, &ours_tree, Some(&root)).await?;
    let theirs = stand_in(objects, &objects.tree_of(commit).await?, Some(&root)).await?;
    let tree = match merge_trees(objects, &ours, &theirs).await? {
        Merged::Commit(tree) => tree,
        conflicts => return Ok(conflicts),
    };
    if tree == ours_tree {
        // The target holds this change already.
        return Ok(Merged::Commit(onto.clone()));
    }
    let raw = objects.raw_commit(commit).await?;
    let commit = rewritten(&raw, &tree, onto, &committer(request));
    Ok(Merged::Commit(objects.write("commit", commit).await?))
}

async fn stand_in(objects: &Objects, tree: &Oid, parent: Option<&Oid>) -> Result<Oid> {
    let parent = parent.map_or_else(String::new, |parent| format!("parent {parent}\n"));
    let who = "Bulkhead <bulkhead@localhost> 0 +0000";
    let commit = format!("tree {tree}\n{parent}author {who}\ncommitter {who}\n\nstand-in\n");
    objects.write("commit", commit.into_bytes()).await
}

/// The commit with another tree, parent and committer. Author, encoding and message stay; a signature, which no
/// longer fits, goes.
fn rewritten(raw: &[u8], tree: &Oid, parent: &Oid, committer: &str) -> Vec<u8> {
    let end = raw
        .windows(2)
        .position(|pair| pair == b"\n\n")
        .unwrap_or(raw.len());
    let (head, message) = raw.split_at(end);
    let mut out = format!("tree {tree}\nparent {parent}\n").into_bytes();
    for line in head.split(|&byte| byte == b'\n') {
        if line.starts_with(b"author ") {
            out.extend([line, b"\ncommitter ", committer.as_bytes(), b"\n"].concat());
        } else if line.starts_with(b"encoding ") {
            out.extend([line, b"\n"].concat());
        }
    }
    let message = message.strip_prefix(b"\n\n").unwrap_or_default();
    out.extend([b"\n", message].concat());
    out
}

/// The tree of a merge, or the paths that conflict. Merge drivers of attributes do not run: our own configuration
/// defines none, and there is no work tree to read attributes from.
async fn merge_trees(objects: &Objects, ours: &Oid, theirs: &Oid) -> Result<Merged> {
    let git = objects.git().config("merge.renames=true").args([
        "merge-tree",
        "--write-tree",
        "--name-only",
        "-z",
        "--no-messages",
        "--allow-unrelated-histories",
        ours.as_str(),
        theirs.as_str(),
    ]);
    let ended = git.run().await?;
    let mut fields = ended
        .stdout
        .split(|&byte| byte == 0)
        .filter(|field| !field.is_empty());
    match ended.code() {
        Some(0) => Ok(Merged::Commit(Oid::from_bytes(
            fields.next().unwrap_or_default().trim_ascii(),
        )?)),
        Some(1) => Ok(Merged::Conflicts(
            fields.skip(1).map(crate::diff::shown).collect(),
        )),
        _ => Err(ended.failure()),
    }
}

fn committer(request: &LandRequest) -> String {
    let clean = |text: &str| text.replace(['<', '>', '\n', '\0'], "");
    let (name, email) = (
        clean(&request.committer_name),
        clean(&request.committer_email),
    );
    format!("{name} <{email}> {} +0000", request.now_s)
}

/// The new objects of a landing, as a pack. `None` where there are none.
async fn pack(objects: &Objects, commit: &Oid, known: &[&Oid]) -> Result<Option<(File, u32)>> {
    let input = known.iter().fold(format!("{commit}\n"), |input, oid| {
        input + &format!("^{oid}\n")
    });
    let git = objects
        .git()
        .args(["pack-objects", "--revs", "--stdout", "-q"])
        .stdin(input);
    let bytes = git.output_bytes(1 << 30).output().await?;
    let count = bytes
        .get(8..12)
        .map_or(0, |n| u32::from_be_bytes([n[0], n[1], n[2], n[3]]));
    if count == 0 {
        return Ok(None);
    }
    let doing = || Error::io("keep the new objects of a landing");
    let mut file = tempfile::tempfile_in(objects.path()).map_err(doing())?;
    file.write_all(&bytes).map_err(doing())?;
    std::io::Seek::rewind(&mut file).map_err(doing())?;
    Ok(Some((file, count)))
}
