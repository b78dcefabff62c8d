//! What Landlock allows below which path: a second wall behind the mount tree, saying the same thing in other words.

use bulkhead_init::wire::Access;

use crate::{HOME_DIR, WORKSPACE_DIR, plan::Bind};

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// Every right there is up to the newest one listed, without making devices and controlling them.
const OWN: u64 = ((1 << 15) - 1) & !(MAKE_CHAR | MAKE_BLOCK);
const PROGRAMS: u64 = EXECUTE | READ_FILE | READ_DIR;

/// The rules for a sandbox with these binds; `real_dirs` are the root's own directories beside `/usr`, on systems that have
/// not merged them.
pub(crate) fn rules(real_dirs: &[&str], binds: &[Bind]) -> Vec<Access> {
    let rule = |path: &str, rights| Access {
        path: path.to_owned(),
        rights,
    };
    let fixed = [
        // Listing only: what is below has its own rule or cannot be opened.
        ("/", READ_DIR),
        ("/usr", PROGRAMS),
        ("/etc", READ_FILE | READ_DIR),
        ("/proc", READ_FILE | READ_DIR | WRITE_FILE),
        (
            "/dev",
            READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV,
        ),
        ("/dev/shm", OWN),
        ("/tmp", OWN),
        (WORKSPACE_DIR, OWN),
        (HOME_DIR, OWN),
    ];
    let fixed = fixed.into_iter().map(|(path, rights)| rule(path, rights));
    let dirs = real_dirs
        .iter()
        .map(|name| rule(&format!("/{name}"), PROGRAMS));
    let binds = binds
        .iter()
        .map(|bind| rule(&bind.target.display().to_string(), PROGRAMS));
    fixed.chain(dirs).chain(binds).collect()
}
