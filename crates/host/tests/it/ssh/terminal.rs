//! A terminal on the machine.

use std::time::Duration;

use bulkhead_host::{Command, ExitStatus, Host, Process, Signal, Stdio, Target, TerminalSize};
use bulkhead_test_hosts::Sshd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::host;

const SIZE: TerminalSize = TerminalSize {
    rows: 33,
    columns: 101,
};

/// Reads until the words are there, and gives all.
async fn until(process: &mut Process, words: &str) -> String {
    let mut seen = String::new();
    let stdout = process.stdout.as_mut().unwrap();
    let read = async {
        let mut buffer = [0; 1024];
        while !seen.contains(words) {
            let count = stdout.read(&mut buffer).await.unwrap();
            assert!(count > 0, "it ended: {seen:?}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), read).await;
    assert!(waited.is_ok(), "{words:?} did not come: {seen:?}");
    seen
}

#[tokio::test]
async fn h1_a_terminal_has_its_size_its_modes_and_no_trace_of_the_environment() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let long = "v".repeat(9000);
    let command = Command::shell(
        "tty; stty size; stty -a; echo ${#LONG} $TERM; read word; echo got $word; exit 5",
    )
    .env("LONG", &long)
    .env("TERM", "vt220")
    .stdio(Stdio::Terminal(SIZE));
    let mut process = host.spawn(command).await.unwrap();
    let seen = until(&mut process, "9000 vt220").await;
    assert!(seen.starts_with("/dev/pts/"), "{seen}");
    assert!(seen.contains("33 101\r\n"), "{seen}");
    assert!(
        seen.contains(" icanon") && seen.contains(" echo ") && !seen.contains("-opost"),
        "{seen}"
    );
    assert!(!seen.contains("vvvv"), "{seen}");
    process
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"hello\r")
        .await
        .unwrap();
    let seen = until(&mut process, "got hello\r\n").await;
    assert!(seen.contains("hello\r\n"), "typed words are shown: {seen}");
    assert_eq!(process.control.wait().await, ExitStatus::Code(5));
    let mut rest = Vec::new();
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_to_end(&mut rest)
        .await
        .unwrap();
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h1_a_terminal_changes_its_size_and_interrupts() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let line = "trap 'echo resized $(stty size)' WINCH; echo ready; while :; do sleep 0.05; done";
    let command = Command::shell(line).stdio(Stdio::Terminal(SIZE));
    let mut process = host.spawn(command).await.unwrap();
    until(&mut process, "ready").await;
    let size = TerminalSize {
        rows: 50,
        columns: 200,
    };
    process.control.resize(size).await.unwrap();
    until(&mut process, "resized 50 200").await;
    process
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"\x03")
        .await
        .unwrap();
    let status = process.control.wait().await;
    assert!(!status.success(), "{status}");
    let plain = host.spawn(Command::new(["sleep", "1000"])).await.unwrap();
    plain.control.resize(size).await.unwrap_err();
    plain
        .control
        .signal(Signal::Kill, Target::Group)
        .await
        .unwrap();
    host.teardown().await.unwrap();
}
