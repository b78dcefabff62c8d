//! The runner's own machine for the suite.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use bulkhead_host::{Host, LocalConfig, LocalHost};

use super::{Maker, errors};

/// The variable that tells a test inside where its places are.
const BASE: &str = "BASE";

pub(crate) struct Local {
    dir: PathBuf,
    /// Whether the directory holds what `inside.sh` mounts.
    has_mounts: bool,
    _temporary: Option<tempfile::TempDir>,
}

impl Local {
    pub(crate) fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        Self {
            dir: temporary.path().to_owned(),
            has_mounts: false,
            _temporary: Some(temporary),
        }
    }

    fn place(&self, name: &str) -> Option<PathBuf> {
        self.has_mounts.then(|| self.dir.join(name))
    }
}

impl Maker for Local {
    fn describe(&self) -> Box<dyn Fn() -> Arc<dyn Host> + Send + Sync> {
        let home = self.dir.clone();
        Box::new(move || Arc::new(LocalHost::new(LocalConfig::new(&home))))
    }

    fn scratch(&self) -> PathBuf {
        self.dir.clone()
    }

    fn read_only(&self) -> Option<PathBuf> {
        self.place("ro")
    }

    fn other_file_system(&self) -> Option<PathBuf> {
        self.place("other")
    }
}

/// Everything that needs root to be set up: a read-only file system, another one, another user.
#[test]
fn h9_errors_as_root_with_other_file_systems() {
    inside("root");
}

#[test]
fn h9_errors_as_nobody_with_other_file_systems() {
    inside("user");
}

/// Runs this very test program once more, in a mount namespace of its own.
fn inside(who: &str) {
    let base = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node-errors/inside.sh");
    let ran = Command::new("sh")
        .arg(script)
        .arg(who)
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "conformance::local::inside_of_it",
            "--ignored",
            "--nocapture",
        ])
        .env(BASE, base.path())
        .output()
        .unwrap();
    let (out, errors) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(
        ran.status.success() && out.contains("1 passed"),
        "{out}{errors}"
    );
}

#[tokio::test]
#[ignore = "run by the tests above, where it finds its mounts"]
async fn inside_of_it() {
    let local = Local {
        dir: std::env::var_os(BASE).unwrap().into(),
        has_mounts: true,
        _temporary: None,
    };
    readable_only(&local).await;
    errors::section(&local).await;
}

/// Reading a directory needs no right to enter it.
async fn readable_only(local: &Local) {
    let place = super::Place::new(local).await;
    let dir = place.path("readable");
    place
        .files
        .mkdir_recursive(&dir.join("inner"), 0o755)
        .await
        .unwrap();
    place.files.chmod(&dir, 0o400).await.unwrap();
    assert_eq!(place.files.readdir(&dir).await.unwrap(), ["inner"]);
    place.files.chmod(&dir, 0o755).await.unwrap();
    place.end().await;
}
