//! File systems of hosts (H9): a [`Provider`] has the primitive operations, [`FileSystem`] Node's methods.

mod error;
mod provider;

use std::sync::Arc;

pub use error::{Code, FsError};
pub use provider::{
    Access, Capabilities, Change, ChangeKind, Entry, FileKind, Follow, OpenFile, OpenFlags,
    Provider, Stat, Watcher,
};

/// Node's file system over a host's provider.
#[derive(Debug, Clone)]
pub struct FileSystem {
    provider: Arc<dyn Provider>,
}

impl FileSystem {
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider }
    }

    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }
}
