//! What can go wrong, in words that say what was being done and, where a person can act, the remedy.

use std::{io, path::PathBuf, time::Duration};

use crate::names::{InvalidName, Oid};

/// A request that Bulkhead refuses by rule. Each has a stable name for machines and a remedy for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "{scheme} remotes are not supported: credentials for them cannot be kept to one process; \
         use the https URL of the repository, or a local path"
    )]
    Scheme { scheme: String },
    #[error(
        "{url} carries credentials: store them with `bulkhead secrets set` and use the URL without them"
    )]
    CredentialsInUrl { url: String },
    #[error(
        "{path} belongs to user {owner}, not to user {me} who runs Bulkhead: \
         run Bulkhead as its owner, or give it a clone of its own"
    )]
    ForeignOwner { path: PathBuf, owner: u32, me: u32 },
    #[error("{path} is not a git repository: name its root directory or its bare directory")]
    NotARepository { path: PathBuf },
    #[error(
        "the submodule at {path} comes from {url}, which this run does not list: \
         add that repository to the run's submodules, or remove the submodule"
    )]
    SubmoduleNotListed { path: String, url: String },
    #[error("the submodule at {path} has no URL in .gitmodules: add one, or remove the submodule")]
    SubmoduleWithoutUrl { path: String },
    #[error(
        "the submodule at {path} pins commit {commit}, which {url} does not have: push it there first"
    )]
    SubmoduleCommitMissing {
        path: String,
        url: String,
        commit: Oid,
    },
    #[error(
        "more than {limit} submodules, or nested deeper than {depth}: raise neither, split the repository"
    )]
    SubmodulesTooMany { limit: usize, depth: usize },
    #[error(
        "{path} holds an LFS pointer, and its object {oid} is not in the repository's LFS store: \
         run `git lfs fetch --all` in a local repository, or `git lfs push --all` to a remote one"
    )]
    LfsObjectMissing { path: String, oid: String },
    #[error(
        "{path} is kept in LFS, and LFS objects of this remote repository cannot be served: \
         use a local clone after `git lfs fetch --all`"
    )]
    LfsRemote { path: String },
    #[error(
        "{path} in the submodule from {url} is kept in LFS, which is served for the run's own repository only: \
         keep the file in git there, or remove the submodule"
    )]
    LfsInSubmodule { path: String, url: String },
    #[error(
        "{path} is a symbolic link that leads out of the repository, and agents or Bulkhead read settings through it: \
         make it a plain file or directory, or a link within the repository"
    )]
    SymlinkedSettings { path: String },
    #[error("{path} has uncommitted changes in {paths:?}: commit or stash them, then land again")]
    DirtyCheckout { path: PathBuf, paths: Vec<String> },
    #[error(
        "the checkout at {path} {why}, which landing does not perform: \
         switch it to another branch, land, and switch back"
    )]
    CheckoutNeedsMore { path: PathBuf, why: String },
    #[error("the run's branch holds merge commits: land it with a merge instead of a rebase")]
    MergesInRebase,
    #[error(
        "{reference} moved while it was being updated (expected {expected}, found {found}): try again"
    )]
    RefMoved {
        reference: String,
        expected: String,
        found: String,
    },
    #[error("{branch} holds commits that the result does not: name another branch")]
    NotForward { branch: String },
    #[error("{reference} is checked out at {path}: choose a branch that no checkout holds")]
    CheckedOut { reference: String, path: PathBuf },
    #[error("{reference} does not name a commit in {repository}: check the branch's name")]
    NoSuchRevision {
        reference: String,
        repository: String,
    },
}

impl Refusal {
    /// The stable name for machines.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotForward { .. } => "git_not_forward",
            Self::Scheme { .. } => "git_scheme",
            Self::CredentialsInUrl { .. } => "git_credentials_in_url",
            Self::ForeignOwner { .. } => "git_foreign_owner",
            Self::NotARepository { .. } => "git_not_a_repository",
            Self::SubmoduleNotListed { .. } => "git_submodule_not_listed",
            Self::SubmoduleWithoutUrl { .. } => "git_submodule_without_url",
            Self::SubmoduleCommitMissing { .. } => "git_submodule_commit_missing",
            Self::SubmodulesTooMany { .. } => "git_submodules_too_many",
            Self::LfsObjectMissing { .. } => "git_lfs_object_missing",
            Self::LfsRemote { .. } => "git_lfs_remote",
            Self::LfsInSubmodule { .. } => "git_lfs_in_submodule",
            Self::SymlinkedSettings { .. } => "git_symlinked_settings",
            Self::DirtyCheckout { .. } => "git_dirty_checkout",
            Self::CheckoutNeedsMore { .. } => "git_checkout_needs_more",
            Self::MergesInRebase => "git_merges_in_rebase",
            Self::RefMoved { .. } => "git_ref_moved",
            Self::CheckedOut { .. } => "git_checked_out",
            Self::NoSuchRevision { .. } => "git_no_such_revision",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("`git {command}` failed ({status}): {stderr}")]
    Failed {
        /// The arguments, which never hold a credential.
        command: String,
        status: String,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
    #[error("`git {command}` was ended after {after:?}: the repository or its remote is too slow")]
    Timeout { command: String, after: Duration },
    #[error("`git {command}` wrote more than {limit_bytes} bytes and was ended")]
    TooLarge { command: String, limit_bytes: u64 },
    #[error("could not {doing} at the LFS server of the remote repository")]
    Lfs {
        doing: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("could not {doing}")]
    Io { doing: String, source: io::Error },
    #[error("git's answer to `{command}` was not understood: {what}")]
    Answer { command: String, what: String },
    #[error("git's answer holds a name that is none")]
    Name(#[from] InvalidName),
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            doing: doing.into(),
            source,
        }
    }

    /// The refusal behind this error, where it is one.
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;
