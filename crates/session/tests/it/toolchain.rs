//! The agents' command lines, installed from npm by the committed lock files into a cache that test runs share.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// The directory in which `name` is installed, as a toolchain of a phase. Several test processes may ask at once.
pub(crate) fn installed(name: &str) -> PathBuf {
    let manifest = manifests().join(name);
    let lock = fs::read_to_string(manifest.join("package-lock.json")).unwrap();
    let dir = cache().join(format!("{name}-{}", checksum(&lock)));
    fs::create_dir_all(&dir).unwrap();
    let guard = File::create(dir.join(".lock")).unwrap();
    guard.lock().unwrap();
    let done = dir.join(".installed");
    if !done.exists() {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(manifest.join(file), dir.join(file)).unwrap();
        }
        install(&dir);
        fs::write(done, "").unwrap();
    }
    dir
}

/// The lock files, which tests of several crates use.
fn manifests() -> PathBuf {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut found = above.map(|dir| dir.join("crates/session/tests/agents"));
    found.find(|dir| dir.is_dir()).unwrap()
}

/// A place that may be shown inside a sandbox at its own path: not below the directories that sandboxes make
/// themselves.
fn cache() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = home.unwrap_or_default().join(".cache");
    let taken = ["/tmp", "/var", "/etc", "/usr", "/mnt"];
    let usable = cache.is_absolute() && !taken.iter().any(|dir| cache.starts_with(dir));
    let base = if usable { cache } else { PathBuf::from("/opt") };
    base.join("bulkhead-test-agents")
}

fn install(dir: &Path) {
    let output = Command::new("npm")
        .args([
            "install",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts=false",
        ])
        .current_dir(dir)
        .output()
        .expect("npm is needed to install the agents' command lines: run scripts/setup test");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "npm install in {}: {errors}",
        dir.display()
    );
}

/// FNV-1a: enough to tell one lock file from the next.
fn checksum(text: &str) -> String {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let hash = text.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}
