//! stub
use crate::{names::Oid, repository::Repository};

/// A submodule's repository, served read-only to one run.
#[derive(Debug, Clone)]
pub struct ServedSubmodule {
    pub repository: Repository,
    /// The commits that the parent pins.
    pub commits: Vec<Oid>,
}
