//! What the gateway serves to one run: its repository, and read-only the submodules that the run lists.

use std::collections::HashSet;

use crate::{
    error::Result,
    names::{Oid, RUN_BRANCHES, RefName},
    repository::Repository,
    submodules::ServedSubmodule,
    trusted::TrustedRepo,
};

/// A run's repository as its sandboxes see it.
#[derive(Debug)]
pub struct Served {
    pub repository: Repository,
    /// Served at `/git/sub/<index>.git`, in this order.
    pub submodules: Vec<ServedSubmodule>,
    /// Prefixes of refs that are hidden besides [`RUN_BRANCHES`], for runs whose branches have names of their own.
    pub hidden: Vec<RefName>,
}

impl Served {
    pub const fn new(repository: Repository) -> Self {
        Self {
            repository,
            submodules: Vec::new(),
            hidden: Vec::new(),
        }
    }
}

/// Which refs of one repository a request may see, and by that what it may fetch.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The grant's own branch, seen even where its prefix is hidden.
    pub(crate) own: Option<RefName>,
    pub(crate) hidden: Vec<String>,
    /// Commits that may be fetched by id though no visible ref leads to them (a submodule's pinned commit).
    pub(crate) pinned: Vec<Oid>,
}

impl View {
    pub(crate) fn of_run(served: &Served, own: &RefName) -> Self {
        let mut hidden = vec![RUN_BRANCHES.to_owned()];
        hidden.extend(served.hidden.iter().map(RefName::to_string));
        Self {
            own: Some(own.clone()),
            hidden,
            pinned: Vec::new(),
        }
    }

    pub(crate) fn of_submodule(submodule: &ServedSubmodule) -> Self {
        Self {
            own: None,
            hidden: vec![RUN_BRANCHES.to_owned()],
            pinned: submodule.commits.clone(),
        }
    }

    /// The `uploadpack.hideRefs` settings: everything but branches and tags is hidden (stashes, notes, remotes,
    /// pull requests), then other runs' branches; the last match counts.
    pub(crate) fn hide_refs(&self) -> Vec<String> {
        let mut rules = vec![
            "refs/".to_owned(),
            "!refs/heads/".to_owned(),
            "!refs/tags/".to_owned(),
        ];
        rules.extend(
            self.hidden
                .iter()
                .map(|prefix| prefix.trim_end_matches('/').to_owned()),
        );
        rules.extend(self.own.iter().map(|own| format!("!{own}")));
        rules
            .into_iter()
            .map(|rule| format!("uploadpack.hideRefs={rule}"))
            .collect()
    }

    /// Hides `HEAD` too where a person's checkout is on a branch that is hidden, or on none. A submodule's own
    /// checkout is usually on none, and its `HEAD` is pinned.
    pub(crate) async fn hide_head(&self, repo: &TrustedRepo) -> Result<Option<&'static str>> {
        if self.own.is_none() {
            return Ok(None);
        }
        let head = repo.head_branch().await?;
        let seen = head.is_some_and(|branch| self.sees(&branch));
        Ok((!seen).then_some("uploadpack.hideRefs=HEAD"))
    }

    pub(crate) fn sees(&self, name: &RefName) -> bool {
        let below = |prefix: &String| {
            let prefix = prefix.trim_end_matches('/');
            name.as_str()
                .strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.own.as_ref() == Some(name) || !self.hidden.iter().any(below)
    }

    /// The ids that a fetch may start from without further question.
    pub(crate) async fn tips(&self, repo: &TrustedRepo) -> Result<HashSet<Oid>> {
        let refs = repo.refs().await?;
        let mut tips: HashSet<Oid> = refs
            .into_iter()
            .filter(|(name, _)| self.sees(name))
            .map(|(_, oid)| oid)
            .collect();
        tips.extend(self.pinned.iter().cloned());
        Ok(tips)
    }
}
