//! Without a wall there is no zygote.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    process::{Command, Stdio},
};

use crate::{ZYGOTE, support::assert_walls};

const ARGUMENTS: [&str; 5] = ["zygote", "--memory-mib", "128", "--isolate", "child"];

/// D8, issue 4, item 2: where namespaces cannot be had, the exit code is 3 and the remedy is in words.
#[test]
fn d8_without_namespaces_it_ends_with_3_and_a_remedy() {
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-sys_admin", ZYGOTE])
        .args(ARGUMENTS)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("CAP_SYS_ADMIN"), "{words}");
}

/// Issue 4, item 2: a user without any right has a zygote too, by a user namespace.
#[test]
fn d8_an_ordinary_user_has_a_zygote() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("trial");
    fs::copy(ZYGOTE, &program).unwrap();
    let mut broker = Command::new(&program)
        .arg("broker")
        .uid(61_234)
        .gid(61_234)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(broker.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pids: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(pids.len(), 3, "{line}");
    let status = fs::read_to_string(format!("/proc/{}/status", pids[2])).unwrap();
    assert_walls(&status);
    drop(broker.stdin.take());
    assert!(broker.wait().unwrap().success());
}
