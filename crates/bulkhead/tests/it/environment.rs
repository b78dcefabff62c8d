//! H7: credentials leave the process's environment, and nobody can read them there while it runs.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use crate::program::World;

const CANARY: &str = "canary-5b1f0c7e";

#[test]
fn h7_case_31_a_credential_in_a_variable_is_gone_from_proc() {
    let world = World::new();
    let mut command = world.command(["secrets", "set", "NPM_TOKEN"]);
    command
        .env("ANTHROPIC_API_KEY", CANARY)
        .env("BULKHEAD_TOKEN", CANARY);
    // It waits for its value on standard input, so there is time to look.
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let proc = std::path::PathBuf::from(format!("/proc/{}", child.id()));
    let deadline = Instant::now() + Duration::from_secs(30);
    let settled = loop {
        let environ =
            String::from_utf8_lossy(&std::fs::read(proc.join("environ")).unwrap_or_default())
                .into_owned();
        if environ.contains("BULKHEAD_HANDOVER_FD=") && world.data_dir().join("key").exists() {
            break environ;
        }
        assert!(
            Instant::now() < deadline,
            "the process did not replace itself: {environ}"
        );
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(!settled.contains(CANARY));
    let arguments = std::fs::read_to_string(proc.join("cmdline")).unwrap();
    assert!(
        !arguments.contains(CANARY) && arguments.contains("secrets"),
        "{arguments:?}"
    );
    for descriptor in std::fs::read_dir(proc.join("fd")).unwrap() {
        let path = descriptor.unwrap().path();
        let target = std::fs::read_link(&path).unwrap_or_default();
        if target.to_string_lossy().contains("memfd:") {
            assert_eq!(
                std::fs::read(&path).unwrap(),
                b"",
                "the hand-over is not emptied"
            );
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// R4: a few sandboxes that hold all connections they may must not use up the open files of the process that serves everybody.
#[test]
fn r4_the_usual_limit_of_open_files_is_raised() {
    let world = World::new();
    let bulkhead = world.command(["secrets", "set", "NPM_TOKEN"]);
    let mut child = std::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -Sn 200; ulimit -Hn 5000; exec \"$0\" secrets set NPM_TOKEN",
        ])
        .arg(bulkhead.get_program())
        .env("HOME", world.path())
        .env("BULKHEAD_DATA_DIR", world.data_dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let limits = std::path::PathBuf::from(format!("/proc/{}/limits", child.id()));
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let text = std::fs::read_to_string(&limits).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Max open files"));
        let numbers: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        if numbers.get(3) == Some(&"5000") {
            break;
        }
        assert!(Instant::now() < deadline, "{line:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
