//! The runner's own machine for the suite.

use std::{path::PathBuf, sync::Arc};

use bulkhead_host::{Host, LocalConfig, LocalHost};

use super::Maker;

pub(crate) struct Local {
    dir: tempfile::TempDir,
}

impl Local {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }
}

impl Maker for Local {
    fn describe(&self) -> Box<dyn Fn() -> Arc<dyn Host> + Send + Sync> {
        let home = self.dir.path().to_owned();
        Box::new(move || Arc::new(LocalHost::new(LocalConfig::new(&home))))
    }

    fn scratch(&self) -> PathBuf {
        self.dir.path().to_owned()
    }
}
