//! What takes more than its share: the right reason, nothing left, and a neighbour that does not notice.

use std::time::{Duration, Instant};

use bulkhead_sandbox::{Cause, EndReason, ExitStatus, Limits, ProcessSpec, Workspace};
use tokio::io::AsyncReadExt;

use crate::support::{ATTACK_DIR, Ended, Yard, assert_nothing_left, run, small_limits};

/// Work that takes about two seconds: it counts, hashes and writes, and knows its own right result.
const NEIGHBOUR: &str = "
    n=0; while [ $n -lt 200 ]; do
        echo line $n >> book || exit 1
        test \"$(tail -n 1 book)\" = \"line $n\" || exit 2
        n=$((n+1)); sleep 0.01
    done
    test \"$(wc -l < book)\" = 200 && echo all there";

/// Runs the bomb beside a neighbour, which must finish as if it were alone.
async fn explode(limits: Limits, workspace: Workspace, bomb: &[&str]) -> Ended {
    let yard = Yard::new().await;
    let patient = Limits {
        time_ms: 600_000,
        ..small_limits()
    };
    let neighbour = yard
        .engine
        .create(yard.plan(patient, Workspace::Image))
        .await
        .unwrap();
    let mut argv = vec![format!("{ATTACK_DIR}/bomb")];
    argv.extend(bomb.iter().map(|word| (*word).to_owned()));
    let (beside, ended) = tokio::join!(
        run(&neighbour, &["/bin/sh", "-c", NEIGHBOUR]),
        yard.attack(limits, workspace, &argv)
    );
    assert_eq!(
        beside.outcome.reason,
        EndReason::Exit { code: 0 },
        "{}",
        beside.stderr
    );
    assert_eq!(beside.stdout, "all there\n");
    assert_nothing_left(beside.id);
    assert_nothing_left(ended.id);
    ended
}

/// R4, case 56: a fork bomb ends as `pids_limit`.
#[tokio::test]
async fn case_56_a_fork_bomb_ends_as_pids_limit_and_its_neighbour_does_not_notice() {
    let ended = explode(small_limits(), Workspace::Tmpfs, &["fork"]).await;
    assert_eq!(
        ended.outcome.reason,
        EndReason::PidsLimit,
        "{:?}",
        ended.outcome
    );
    assert!(!ended.outcome.evidence.is_empty());
}

/// R4, case 57: memory taken by a grandchild ends as `oom`, not as "exit 137".
#[tokio::test]
async fn case_57_a_memory_bomb_in_a_grandchild_ends_as_oom_and_its_neighbour_does_not_notice() {
    let ended = explode(small_limits(), Workspace::Tmpfs, &["memory"]).await;
    assert_eq!(ended.outcome.reason, EndReason::Oom, "{:?}", ended.outcome);
    assert!(!ended.outcome.evidence.is_empty());
}

/// Case 57: where only a tool of the agent died of memory and the agent went on, the phase is not `oom`.
#[tokio::test]
async fn case_57_a_tool_that_dies_of_memory_is_evidence_and_not_the_reason() {
    let yard = Yard::new().await;
    let script = format!("{ATTACK_DIR}/bomb memory; echo the agent goes on");
    let ended = yard
        .attack(
            small_limits(),
            Workspace::Tmpfs,
            &["/bin/sh", "-c", &script],
        )
        .await;
    assert_eq!(ended.outcome.reason, EndReason::Exit { code: 0 });
    assert!(ended.stdout.contains("the agent goes on"));
    let evidence = format!("{:?}", ended.outcome.evidence);
    assert!(
        evidence.contains("oom"),
        "the kill is not mentioned: {evidence}"
    );
}

/// R4, case 48: a full disk ends as `disk_full`, whether the disk is an image or memory.
#[tokio::test]
async fn case_48_a_disk_bomb_ends_as_disk_full_and_its_neighbour_does_not_notice() {
    let ended = explode(small_limits(), Workspace::Image, &["disk"]).await;
    assert_eq!(
        ended.outcome.reason,
        EndReason::DiskFull,
        "{} {:?}",
        ended.stderr,
        ended.outcome
    );
    assert!(!ended.outcome.evidence.is_empty());
}

/// R4: a hundred thousand files are work like any other.
#[tokio::test]
async fn a_hundred_thousand_files_bomb_is_written_and_removed_with_the_sandbox() {
    let limits = Limits {
        disk_bytes: 2 << 30,
        ..small_limits()
    };
    let ended = explode(limits, Workspace::Image, &["files", "100000"]).await;
    assert_eq!(
        ended.outcome.reason,
        EndReason::Exit { code: 0 },
        "{}",
        ended.stderr
    );
}

/// R4: a process that ignores every signal, with children that left its session, is gone at the time limit.
#[tokio::test]
async fn a_deaf_process_bomb_ends_at_its_time_limit() {
    let limits = Limits {
        time_ms: 1_500,
        ..small_limits()
    };
    let started = Instant::now();
    let ended = explode(limits, Workspace::Tmpfs, &["deaf"]).await;
    assert_eq!(ended.outcome.reason, EndReason::Timeout);
    assert_eq!(ended.status, ExitStatus::SandboxEnded);
    assert!(started.elapsed() < Duration::from_secs(45));
}

/// R4, case 18: cancelling ends a deaf process as surely as the clock.
#[tokio::test]
async fn case_18_cancelling_ends_a_deaf_process() {
    let yard = Yard::new().await;
    let sandbox = yard
        .engine
        .create(yard.plan(small_limits(), Workspace::Tmpfs))
        .await
        .unwrap();
    let mut process = sandbox
        .spawn(ProcessSpec::new([
            format!("{ATTACK_DIR}/bomb"),
            "deaf".to_owned(),
        ]))
        .await
        .unwrap();
    let mut said = [0_u8; 4];
    process
        .stderr
        .take()
        .unwrap()
        .read_exact(&mut said)
        .await
        .unwrap();
    let outcome = sandbox.end(Cause::Cancelled).await;
    assert_eq!(outcome.reason, EndReason::Cancelled);
    assert_eq!(process.wait().await, ExitStatus::SandboxEnded);
    assert_nothing_left(sandbox.id());
}

/// R4: ten gigabytes of output pass without filling the memory of who reads them.
#[tokio::test]
async fn a_log_bomb_of_ten_gigabytes_is_drained() {
    const BYTES: u64 = 10_000_000_000;
    let patient = Limits {
        time_ms: 600_000,
        ..small_limits()
    };
    let yard = Yard::new().await;
    let sandbox = yard
        .engine
        .create(yard.plan(patient, Workspace::Tmpfs))
        .await
        .unwrap();
    let mut process = sandbox
        .spawn(ProcessSpec::new([
            format!("{ATTACK_DIR}/bomb"),
            "log".to_owned(),
            BYTES.to_string(),
        ]))
        .await
        .unwrap();
    let mut output = process.stdout.take().unwrap();
    let mut buffer = vec![0_u8; 1 << 18];
    let mut seen = 0_u64;
    loop {
        let n = output.read(&mut buffer).await.unwrap();
        if n == 0 {
            break;
        }
        seen += n as u64;
    }
    let status = process.wait().await;
    let outcome = sandbox.end(Cause::Finished(status)).await;
    assert_eq!(seen, BYTES);
    assert_eq!(outcome.reason, EndReason::Exit { code: 0 });
    assert_nothing_left(sandbox.id());
}
