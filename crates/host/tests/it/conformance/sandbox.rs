//! The built-in sandbox for the suite.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bulkhead_host::{Command, FileSystem, Host, SandboxHost, WriteOptions};
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

/// Case 44: a path that a process inside cannot read is closed to the file API too, also by way of a link made inside.
#[tokio::test]
async fn case_44_the_file_api_refuses_what_a_process_is_refused() {
    let outside = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    std::fs::write(outside.path(), "canary").unwrap();
    let path = outside.path().to_str().unwrap();
    let sandboxes = Sandboxes::new();
    let host = (sandboxes.describe())();
    let line = format!("ln -s {path} link; cat {path} || cat link");
    let process = host
        .spawn(Command::shell(&line).cwd(WORKSPACE_DIR))
        .await
        .unwrap();
    assert!(!process.control.wait().await.success());
    let files = FileSystem::new(host.files());
    for path in [
        path,
        "/workspace/link",
        "/proc/1/root/etc/shadow",
        "/etc/shadow",
    ] {
        let error = files.read_file(path.as_ref()).await.unwrap_err();
        assert!(
            ["ENOENT", "EACCES"].contains(&error.code.name()),
            "{path}: {error}"
        );
    }
    let error = files
        .write_file(
            "/workspace/link/../../etc/passwd".as_ref(),
            "x",
            WriteOptions::WRITE,
        )
        .await
        .unwrap_err();
    assert!(
        ["ENOENT", "EACCES", "EROFS"].contains(&error.code.name()),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(outside.path()).unwrap(), "canary");
    host.teardown().await.unwrap();
}
