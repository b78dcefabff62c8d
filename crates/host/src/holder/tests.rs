//! The holder's protocol against the real helper, without any container around it.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{os::unix::fs::PermissionsExt as _, process, time::Duration};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::{ExitStatus, Signal, Target, TerminalSize};

struct Started {
    holder: Holder,
    process: tokio::process::Child,
    _dir: tempfile::TempDir,
}

async fn start(arguments: &[&str]) -> Started {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("init");
    tokio::fs::write(&program, bulkhead_sandbox::helper_program())
        .await
        .unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
    let mut process = tokio::process::Command::new(program)
        .arg("hold")
        .args(arguments)
        .stdin(process::Stdio::piped())
        .stdout(process::Stdio::piped())
        .spawn()
        .unwrap();
    let (from, to) = (
        process.stdout.take().unwrap(),
        process.stdin.take().unwrap(),
    );
    let holder = Holder::connect("here".to_owned(), from, to, Beat::Never)
        .await
        .unwrap();
    Started {
        holder,
        process,
        _dir: dir,
    }
}

async fn output(process: &mut Process) -> String {
    let mut text = String::new();
    let stdout = process.stdout.as_mut().unwrap();
    stdout.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn h1_streams_are_exact_and_apart_and_statuses_are_the_kernels() {
    let started = start(&[]).await;
    let line = "pwd; printf \"$WORD\"; printf 'wrong\\n' >&2; exit 137";
    let command = Command::shell(line).cwd("/usr").env("WORD", "a\nb=c");
    let mut process = started.holder.spawn(command).await.unwrap();
    assert_eq!(output(&mut process).await, "/usr\na\nb=c");
    let mut text = String::new();
    process
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .await
        .unwrap();
    assert_eq!(text, "wrong\n");
    assert_eq!(process.control.wait().await, ExitStatus::Code(137));
    let killed = started.holder.spawn(Command::shell("kill -9 $$")).await;
    let status = killed.unwrap().control.wait().await;
    assert_eq!(status, ExitStatus::Signal(9));
}

#[tokio::test]
async fn h1_what_cannot_start_says_why() {
    let started = start(&[]).await;
    let missing = started
        .holder
        .spawn(Command::new(["no-such-program"]))
        .await;
    assert!(
        matches!(&missing, Err(HostError::NotFound { program, .. }) if program == "no-such-program"),
        "{missing:?}"
    );
    let nowhere = started
        .holder
        .spawn(Command::new(["true"]).cwd("/no/such/dir"))
        .await;
    let Err(error @ HostError::Spawn { .. }) = nowhere else {
        panic!("it started")
    };
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "entering /no/such/dir");
    let denied = started.holder.spawn(Command::new(["/etc/passwd"])).await;
    assert!(matches!(denied, Err(HostError::Spawn { .. })));
}

#[tokio::test]
async fn h1_input_goes_through_whole_while_output_waits_for_its_reader() {
    let started = start(&[]).await;
    let command = Command::new(["cat"]).stdio(Stdio::PIPES);
    let mut process = started.holder.spawn(command).await.unwrap();
    let sent: Vec<u8> = (0..16_u32 << 20)
        .map(|n| (n / 7).to_le_bytes()[0])
        .collect();
    let (mut stdin, copy) = (process.stdin.take().unwrap(), sent.clone());
    let mut writes = Box::pin(async move {
        stdin.write_all(&copy).await.unwrap();
        stdin.shutdown().await.unwrap();
    });
    // Nothing is read yet: the windows of both directions fill, and the writer has to wait.
    let waits = tokio::time::timeout(Duration::from_millis(300), &mut writes).await;
    assert!(waits.is_err());
    // Another process is not held up by that.
    let mut other = started
        .holder
        .spawn(Command::new(["echo", "on"]))
        .await
        .unwrap();
    assert_eq!(output(&mut other).await, "on\n");
    let (mut got, mut stdout) = (Vec::new(), process.stdout.take().unwrap());
    let (_, read) = tokio::join!(writes, stdout.read_to_end(&mut got));
    read.unwrap();
    assert!(got == sent);
    assert_eq!(process.control.wait().await, ExitStatus::Code(0));
}

#[tokio::test]
async fn h1_each_side_learns_that_the_other_stopped() {
    let started = start(&[]).await;
    let endless = Command::shell("trap '' PIPE; while echo y; do :; done 2>/dev/null; exit 3");
    let mut process = started.holder.spawn(endless).await.unwrap();
    let mut first = [0; 2];
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .await
        .unwrap();
    drop(process.stdout.take());
    assert_eq!(process.control.wait().await, ExitStatus::Code(3));
    let deaf = Command::new(["true"]).stdio(Stdio::PIPES);
    let mut process = started.holder.spawn(deaf).await.unwrap();
    process.control.wait().await;
    let mut stdin = process.stdin.take().unwrap();
    let broken = async {
        while stdin.write_all(&[0; 4096]).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), broken)
        .await
        .unwrap();
}

#[tokio::test]
async fn h1_signals_reach_a_process_or_its_group_also_after_its_leader() {
    let started = start(&[]).await;
    let trapped = Command::shell("trap 'exit 9' TERM; echo on; while :; do sleep 0.05; done");
    let mut process = started.holder.spawn(trapped).await.unwrap();
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0; 3])
        .await
        .unwrap();
    process
        .control
        .signal(Signal::Terminate, Target::Process)
        .await
        .unwrap();
    assert_eq!(process.control.wait().await, ExitStatus::Code(9));
    let orphaning = Command::shell("sleep 1000 & echo $!");
    let mut process = started.holder.spawn(orphaning).await.unwrap();
    assert_eq!(process.control.wait().await, ExitStatus::Code(0));
    process
        .control
        .signal(Signal::Kill, Target::Group)
        .await
        .unwrap();
    // The output ends only when the sleeper, which holds it, is gone.
    let text = tokio::time::timeout(Duration::from_secs(20), output(&mut process)).await;
    assert!(text.unwrap().trim().parse::<u32>().is_ok());
}

#[tokio::test]
async fn h1_a_terminal_has_its_size_and_is_told_a_new_one() {
    let started = start(&[]).await;
    let size = TerminalSize {
        rows: 30,
        columns: 100,
    };
    let line = "stty size; trap 'stty size; exit 0' WINCH; echo on; while :; do sleep 0.05; done";
    let command = Command::shell(line).stdio(Stdio::Terminal(size));
    let mut process = started.holder.spawn(command).await.unwrap();
    let expected = "30 100\r\non\r\n";
    let mut seen = vec![0; expected.len()];
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut seen)
        .await
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&seen), expected);
    process
        .control
        .resize(TerminalSize {
            rows: 5,
            columns: 7,
        })
        .await
        .unwrap();
    assert_eq!(output(&mut process).await, "5 7\r\n");
    assert_eq!(process.control.wait().await, ExitStatus::Code(0));
}

#[tokio::test]
async fn h1_many_at_once_and_none_is_lost() {
    let started = start(&[]).await;
    let uses = (0..300).map(|n| {
        let holder = &started.holder;
        async move {
            let command = Command::shell(&format!("echo {n}; exit {}", n % 100));
            let mut process = holder.spawn(command).await.unwrap();
            (output(&mut process).await, process.control.wait().await)
        }
    });
    let got = futures::future::join_all(uses).await;
    for (n, got) in (0..).zip(got) {
        assert_eq!(got, (format!("{n}\n"), ExitStatus::Code(n % 100)));
    }
    assert!(started.holder.link.table().is_empty());
}

#[tokio::test]
async fn h11_the_end_of_the_connection_is_the_end_of_the_processes() {
    let mut started = start(&[]).await;
    let mut process = started
        .holder
        .spawn(Command::shell("echo on; exec sleep 1000"))
        .await
        .unwrap();
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0; 3])
        .await
        .unwrap();
    started.holder.end().await;
    assert_eq!(process.control.wait().await, ExitStatus::HostEnded);
    assert!(started.process.wait().await.unwrap().success());
    let after = started.holder.spawn(Command::new(["true"])).await;
    assert!(matches!(after, Err(HostError::Gone { .. })));
}

#[tokio::test]
async fn h14_a_holder_that_hears_nothing_ends_by_itself() {
    let mut started = start(&["300"]).await;
    let process = started
        .holder
        .spawn(Command::new(["sleep", "1000"]))
        .await
        .unwrap();
    let status = tokio::time::timeout(Duration::from_secs(20), process.control.wait()).await;
    assert_eq!(status.unwrap(), ExitStatus::HostEnded);
    assert!(started.process.wait().await.unwrap().success());
}

#[tokio::test]
async fn h1_connections_go_both_ways_and_each_direction_ends_by_itself() {
    let started = start(&[]).await;
    let dir = tempfile::tempdir().unwrap();
    let any = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
    for at in [any, Endpoint::Unix(dir.path().join("a socket"))] {
        let mut listener = started.holder.listen_at(at).await.unwrap();
        let at = listener.endpoint();
        let both = tokio::join!(started.holder.stream_to(at.clone()), listener.accept());
        let (mut near, mut far) = (both.0.unwrap(), both.1.unwrap());
        near.write_all(b"question").await.unwrap();
        near.shutdown().await.unwrap();
        let mut heard = String::new();
        far.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "question");
        // The other direction is still open.
        drop(listener);
        far.write_all(b"answer").await.unwrap();
        drop(far);
        let mut heard = String::new();
        near.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "answer");
        drop(near);
        let refused = started.holder.stream_to(at).await;
        assert!(matches!(refused, Err(HostError::Forward { .. })));
    }
    let empty = async {
        while !started.holder.link.table().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), empty)
        .await
        .unwrap();
}

#[tokio::test]
async fn h1_a_connection_that_nobody_accepts_ends_with_the_listening() {
    let started = start(&[]).await;
    let any = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
    let listener = started.holder.listen_at(any).await.unwrap();
    let mut near = started.holder.stream_to(listener.endpoint()).await.unwrap();
    drop(listener);
    let mut heard = Vec::new();
    let read = near.read_to_end(&mut heard);
    let read = tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .unwrap();
    assert!(matches!(read, Ok(0)), "{read:?}");
}
