//! The image, packed by tar from a directory of the tests' own.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

const DIRECTORIES: [&str; 10] = [
    "usr",
    "proc",
    "sys",
    "dev",
    "etc",
    "run",
    "root",
    "work",
    "var/tmp",
    "home/agent",
];
const LINKS: [&str; 5] = ["bin", "sbin", "lib", "lib32", "lib64"];
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n";
const GROUP: &str = "root:x:0:\nagent:x:1000:\n";

pub(super) fn write(to: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for directory in DIRECTORIES {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for link in LINKS {
        std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link)).unwrap();
    }
    fs::write(root.join("etc/passwd"), PASSWD).unwrap();
    fs::write(root.join("etc/group"), GROUP).unwrap();
    fs::create_dir(root.join("tmp")).unwrap();
    for open in ["tmp", "var/tmp", "work", "home/agent"] {
        fs::set_permissions(root.join(open), fs::Permissions::from_mode(0o1777)).unwrap();
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    let packed = Command::new("tar")
        .args(["--owner=0", "--group=0", "-C"])
        .arg(root)
        .args(["-c", "-f"])
        .arg(to)
        .arg(".")
        .status()
        .unwrap();
    assert!(packed.success());
}
