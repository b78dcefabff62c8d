//! The built-in sandbox for the suite.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bulkhead_host::{Host, SandboxHost};
use bulkhead_model::{Limits, SandboxId};
use bulkhead_sandbox::{EngineConfig, Plan, WORKSPACE_DIR, Workspace};

use super::Maker;

pub(crate) struct Sandboxes {
    dir: tempfile::TempDir,
    made: Arc<AtomicU64>,
}

impl Sandboxes {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            made: Arc::default(),
        }
    }
}

impl Maker for Sandboxes {
    fn describe(&self) -> Box<dyn Fn() -> Arc<dyn Host> + Send + Sync> {
        let (dir, made) = (self.dir.path().join("engine"), Arc::clone(&self.made));
        Box::new(move || {
            let id = SandboxId::from_uuid(uuid::Uuid::now_v7());
            let plan = Plan::new(id, Limits::default(), Workspace::Tmpfs);
            let made = Arc::clone(&made);
            let stands = Box::new(move |_| {
                made.fetch_add(1, Ordering::SeqCst);
            });
            Arc::new(SandboxHost::new(EngineConfig::new(&dir), plan, stands))
        })
    }

    fn scratch(&self) -> PathBuf {
        WORKSPACE_DIR.into()
    }

    fn connections(&self) -> Option<u64> {
        Some(self.made.load(Ordering::SeqCst))
    }
}
