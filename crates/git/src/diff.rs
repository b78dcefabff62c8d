//! What one commit changes against another, read from objects (R15, R16).

use aws_lc_rs::digest::{self, SHA256};
use serde::{Deserialize, Serialize};

use crate::{
    command::Git,
    error::{Error, Result},
    names::Oid,
    objects::{Objects, as_os},
    repository::Repository,
};

/// The most files that one diff lists.
const LIST_BYTES: u64 = 64 << 20;

/// How one file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    Renamed,
    Copied,
    /// A file became a link or a submodule, or the other way round.
    TypeChanged,
}

/// One changed file. Paths are bytes, as git stores them: they may hold newlines and need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub kind: ChangeKind,
    /// The path before: the same as `path` unless renamed or copied.
    pub old_path: Vec<u8>,
    pub path: Vec<u8>,
    /// 0 where the file did not exist.
    pub old_mode: u32,
    pub new_mode: u32,
    pub old: Oid,
    pub new: Oid,
    /// Lines, where the content is text and not too large.
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

impl FileChange {
    /// The path for people: no control characters, invalid UTF-8 replaced.
    pub fn shown(&self) -> String {
        shown(&self.path)
    }
}

/// A path for people: what could move a terminal's cursor or end a line is escaped.
pub fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    text.chars()
        .flat_map(|c| {
            let escaped: Vec<char> = if c.is_control() || is_bidi(c) {
                c.escape_default().collect()
            } else {
                vec![c]
            };
            escaped
        })
        .collect()
}

/// Characters that reorder what stands around them, so that a path reads as another.
const fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// What a phase, or a whole run, changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseDiff {
    pub from: Oid,
    pub to: Oid,
    pub files: Vec<FileChange>,
    pub added: u64,
    pub removed: u64,
    /// A patch as `git diff` prints it, cut at the limit that was asked for.
    pub patch: Vec<u8>,
    pub patch_complete: Complete,
    /// SHA-256 over both commits and every changed path, mode and object: a gate's approval is bound to it.
    pub digest: String,
}

/// Whether the whole patch was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Complete {
    Whole,
    Cut,
}

impl Repository {
    /// The change between two commits. `patch_bytes` bounds the patch; the list of files is always whole.
    pub async fn phase_diff(&self, from: &Oid, to: &Oid, patch_bytes: u64) -> Result<PhaseDiff> {
        let objects = self.objects()?;
        let mut files = list(&objects, from, to).await?;
        let (added, removed) = count(&objects, from, to, &mut files).await?;
        let (patch, truncated) = patch(&objects, from, to, None, patch_bytes).await?;
        let patch_complete = if truncated {
            Complete::Cut
        } else {
            Complete::Whole
        };
        let digest = self.diff_digest(from, to).await?;
        let (from, to) = (from.clone(), to.clone());
        Ok(PhaseDiff {
            from,
            to,
            files,
            added,
            removed,
            patch,
            patch_complete,
            digest,
        })
    }

    /// The patch of one file, for readers of diffs too large to keep whole.
    pub async fn file_patch(
        &self,
        from: &Oid,
        to: &Oid,
        path: &[u8],
        limit_bytes: u64,
    ) -> Result<(Vec<u8>, Complete)> {
        let (patch, truncated) = patch(&self.objects()?, from, to, Some(path), limit_bytes).await?;
        Ok((
            patch,
            if truncated {
                Complete::Cut
            } else {
                Complete::Whole
            },
        ))
    }

    /// Names exactly what `from..to` is: changes whenever a commit, a path, a mode or a content does.
    pub async fn diff_digest(&self, from: &Oid, to: &Oid) -> Result<String> {
        let out = diff_tree(&self.objects()?, from, to)
            .args(["--raw", "--no-renames"])
            .output()
            .await?;
        let mut context = digest::Context::new(&SHA256);
        context.update(format!("bulkhead diff 1\0{from}\0{to}\0").as_bytes());
        context.update(&out);
        Ok(context
            .finish()
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }
}

fn diff_tree(objects: &Objects, from: &Oid, to: &Oid) -> Git {
    objects.git().output_bytes(LIST_BYTES).args([
        "diff-tree",
        "-r",
        "-z",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=none",
        "--full-index",
        "--no-color",
        from.as_str(),
        to.as_str(),
    ])
}

async fn list(objects: &Objects, from: &Oid, to: &Oid) -> Result<Vec<FileChange>> {
    let out = diff_tree(objects, from, to)
        .args(["--raw", "--find-renames", "-l1000"])
        .output()
        .await?;
    let mut fields = out
        .split(|&byte| byte == 0)
        .filter(|field| !field.is_empty());
    let mut files = Vec::new();
    while let Some(head) = fields.next() {
        files.push(change(head, &mut fields).ok_or_else(|| Error::Answer {
            command: "diff-tree --raw".to_owned(),
            what: shown(head),
        })?);
    }
    Ok(files)
}

/// `:OLDMODE NEWMODE OLD NEW STATUS`, then one path, or two for renames and copies.
fn change<'a>(head: &[u8], fields: &mut impl Iterator<Item = &'a [u8]>) -> Option<FileChange> {
    let head = std::str::from_utf8(head).ok()?.strip_prefix(':')?;
    let words: Vec<&str> = head.split(' ').collect();
    let [old_mode, new_mode, old, new, status] = words[..] else {
        return None;
    };
    let kind = match status.as_bytes().first()? {
        b'A' => ChangeKind::Added,
        b'M' => ChangeKind::Modified,
        b'D' => ChangeKind::Deleted,
        b'R' => ChangeKind::Renamed,
        b'C' => ChangeKind::Copied,
        b'T' => ChangeKind::TypeChanged,
        _ => return None,
    };
    let old_path = fields.next()?.to_vec();
    let path = match kind {
        ChangeKind::Renamed | ChangeKind::Copied => fields.next()?.to_vec(),
        _ => old_path.clone(),
    };
    Some(FileChange {
        kind,
        old_path,
        path,
        old_mode: u32::from_str_radix(old_mode, 8).ok()?,
        new_mode: u32::from_str_radix(new_mode, 8).ok()?,
        old: old.parse().ok()?,
        new: new.parse().ok()?,
        added: None,
        removed: None,
    })
}

/// Fills in the counted lines, matched by the new path: `ADDED\tREMOVED\tPATH` or `ADDED\tREMOVED\t\0OLD\0NEW`.
async fn count(
    objects: &Objects,
    from: &Oid,
    to: &Oid,
    files: &mut [FileChange],
) -> Result<(u64, u64)> {
    let git = diff_tree(objects, from, to).args(["--numstat", "--find-renames", "-l1000"]);
    let out = git.output().await?;
    let (mut added, mut removed) = (0, 0);
    let mut fields = out.split(|&byte| byte == 0);
    let mut by_path: std::collections::HashMap<Vec<u8>, (Option<u64>, Option<u64>)> =
        Default::default();
    while let Some(field) = fields.next().filter(|field| !field.is_empty()) {
        let mut parts = field.splitn(3, |&byte| byte == b'\t');
        let (Some(plus), Some(minus), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            break;
        };
        let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
        let path = if path.is_empty() {
            fields.nth(1).unwrap_or_default()
        } else {
            path
        };
        let (plus, minus) = (number(plus), number(minus));
        added += plus.unwrap_or(0);
        removed += minus.unwrap_or(0);
        by_path.insert(path.to_vec(), (plus, minus));
    }
    for file in files {
        if let Some((plus, minus)) = by_path.get(&file.path) {
            (file.added, file.removed) = (*plus, *minus);
        }
    }
    Ok((added, removed))
}

async fn patch(
    objects: &Objects,
    from: &Oid,
    to: &Oid,
    path: Option<&[u8]>,
    limit: u64,
) -> Result<(Vec<u8>, bool)> {
    let mut git = objects.git().output_bytes(limit).args([
        "diff-tree",
        "-r",
        "-p",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=none",
        "--submodule=short",
        "--find-renames",
        "-l1000",
        "--no-color",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        from.as_str(),
        to.as_str(),
    ]);
    if let Some(path) = path {
        git = git.args(["--"]).args([as_os(path)]);
    }
    git.truncated_output().await
}
