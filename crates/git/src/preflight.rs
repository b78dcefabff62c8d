//! The look at a start commit before its phase: what the sandbox has to be prepared for, and what is refused while no
//! agent has started yet (cases 38 and 45).

use bulkhead_model::GitExtras;

use crate::{
    diff::shown,
    error::{Refusal, Result},
    later::leads_outside,
    lfs,
    names::Oid,
    objects::{Objects, TreeEntry},
    repository::Repository,
    submodules::{Found, Lookup, ServedSubmodule},
};

/// Directories that agents, or Bulkhead, read settings from at a repository's root.
const SETTINGS: &[&[u8]] = &[
    b".bulkhead",
    b".claude",
    b".codex",
    b".gemini",
    b".opencode",
    b".agents",
    b".mcp.json",
];

/// What a phase from this commit needs.
#[derive(Debug)]
pub struct Preflight {
    /// For the phase's order.
    pub extras: GitExtras,
    /// For [`Served`](crate::Served).
    pub submodules: Vec<ServedSubmodule>,
}

impl Repository {
    /// Looks at `commit` and prepares its submodules and LFS objects, or refuses by name.
    pub async fn preflight(&self, commit: &Oid, lookup: Lookup<'_>) -> Result<Preflight> {
        let objects = self.objects()?;
        let entries = objects.entries(commit, None).await?;
        settings_are_plain(&objects, &entries).await?;
        let uses_lfs = lfs::check(self, &objects, &entries).await?;
        let found = Found::below(lookup, self, commit).await?;
        for served in &found.served {
            lfs::refuse_in_submodule(served).await?;
        }
        let extras = GitExtras {
            config: found.config,
            submodules: !found.served.is_empty(),
            lfs: uses_lfs,
        };
        Ok(Preflight {
            extras,
            submodules: found.served,
        })
    }
}

/// Links among settings are fine as long as they stay in the repository. One that leads out would be broken in the
/// sandbox, or be written through: that is said now, with its path, and not by an agent that fails later.
async fn settings_are_plain(objects: &Objects, entries: &[TreeEntry]) -> Result<()> {
    for entry in entries.iter().filter(|entry| entry.mode == 0o120_000) {
        let top = entry
            .path
            .split(|&byte| byte == b'/')
            .next()
            .unwrap_or_default();
        if !SETTINGS.contains(&top) {
            continue;
        }
        let target = objects.blob(&entry.oid, 64 << 10).await?;
        if leads_outside(&entry.path, &target) {
            return Err(Refusal::SymlinkedSettings {
                path: shown(&entry.path),
            }
            .into());
        }
    }
    Ok(())
}
