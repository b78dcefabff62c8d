//! The built-in executor with real session processes.

use std::{
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use bulkhead_model::{Fence, Limits, NetworkPolicy, PhaseOrder, RunId, Work};
use bulkhead_runner::{
    ArtifactFile, ArtifactKind, BuiltinConfig, BuiltinExecutor, Executor as _, FailureKind,
    Machine, Orphan, OrphanKind, PhaseReport, PhaseSecrets, Running, StopReason,
};

use crate::{session, sink::FakeSink};

const PATIENCE: Duration = Duration::from_secs(30);
const CANARY: &str = "bhp_canary_0123456789";

fn executor(dir: &Path, places: usize) -> BuiltinExecutor {
    BuiltinExecutor::new(BuiltinConfig {
        program: std::env::current_exe().unwrap(),
        args: session::ARGS.iter().map(Into::into).collect(),
        offered_program: None,
        machine: Machine::new(dir),
        places,
        run_dir: dir.to_owned(),
    })
    .unwrap()
}

fn order(run: &str) -> PhaseOrder {
    PhaseOrder {
        run: RunId::from_uuid(uuid::Uuid::now_v7()),
        phase: "build".parse().unwrap(),
        phase_index: 0,
        attempt: 1,
        fence: Fence(1),
        work: Work::Command {
            run: run.to_owned(),
        },
        git: None,
        models: vec![],
        limits: Limits::default(),
        network: NetworkPolicy::default(),
        toolchains: vec![],
        env: Default::default(),
        secrets: vec![],
        artifacts_in: vec![],
        artifacts_out: Default::default(),
        max_turns: None,
        max_cost_usd_milli: None,
    }
}

fn secrets() -> PhaseSecrets {
    PhaseSecrets {
        token: CANARY.into(),
        gateway: "/nonexistent".into(),
        values: Default::default(),
        artifacts: vec![],
    }
}

async fn start(executor: &BuiltinExecutor, run: &str, sink: &Arc<FakeSink>) -> Running {
    let place = executor.reserve().await;
    executor
        .start(place, order(run), secrets(), Arc::clone(sink) as _)
        .await
        .unwrap()
}

async fn end(mut running: Running) -> PhaseReport {
    tokio::time::timeout(PATIENCE, running.ended())
        .await
        .unwrap()
}

async fn begun(sink: &FakeSink) {
    let deadline = Instant::now() + PATIENCE;
    while sink.log.lock().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the session never began");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn failure(report: &PhaseReport) -> FailureKind {
    report.failure.as_ref().unwrap().kind
}

#[tokio::test]
async fn a_report_comes_back_with_everything_said_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(FakeSink::default());
    let executor = executor(dir.path(), 1);
    let report = end(start(&executor, "succeed", &sink).await).await;
    assert_eq!(report.failure, None);
    assert_eq!(report.head, Some("0".repeat(40)));
    assert_eq!(sink.log_text(), "begun\n");
    let left = std::fs::read_dir(dir.path().join("sessions"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "the journal is empty again");
}

/// H7, D7: nothing secret in a session's arguments or environment, and nothing inherited.
#[tokio::test]
async fn h7_the_token_is_in_neither_arguments_nor_environment() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(FakeSink::default());
    let executor = executor(dir.path(), 1);
    end(start(&executor, "environment", &sink).await).await;
    let said = sink.log_text();
    assert!(said.contains(&format!("token of {}", CANARY.len())));
    assert!(!said.contains(CANARY));
    assert!(
        !said.contains("CARGO_"),
        "the environment was inherited: {said}"
    );
}

#[tokio::test]
async fn r15_a_cancelled_session_is_asked_and_may_report() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(FakeSink::default());
    let executor = executor(dir.path(), 1);
    let running = start(&executor, "wait", &sink).await;
    begun(&sink).await;
    running.stop(StopReason::Cancelled);
    end(running).await;
    assert_eq!(sink.log_text(), "begun\nasked to stop\n");
}

/// A session that does not listen is killed after its grace.
#[tokio::test]
async fn r15_a_session_deaf_to_cancel_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(FakeSink::default());
    let executor = executor(dir.path(), 1);
    let running = start(&executor, "spin", &sink).await;
    begun(&sink).await;
    running.stop(StopReason::Cancelled);
    assert_eq!(failure(&end(running).await), FailureKind::Cancelled);
}

#[tokio::test]
async fn a_session_that_dies_is_lost_with_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(FakeSink::default());
    let executor = executor(dir.path(), 1);
    let report = end(start(&executor, "crash", &sink).await).await;
    let failure = report.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Lost);
    assert!(
        failure.message.contains("the session's dying words"),
        "{failure}"
    );
}

/// D2: whoever lost the lease is ended, and its report does not count.
#[tokio::test]
async fn d2_a_stale_holder_ends_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(FakeSink::default());
    let executor = executor(dir.path(), 1);
    let running = start(&executor, "wait", &sink).await;
    begun(&sink).await;
    sink.stale.store(true, Ordering::SeqCst);
    let report = end(running).await;
    assert_eq!(failure(&report), FailureKind::Lost);
    assert_eq!(report.head, None);
}

#[tokio::test]
async fn phases_queue_for_a_place() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(FakeSink::default());
    let executor = executor(dir.path(), 1);
    let running = start(&executor, "wait", &sink).await;
    let waited = tokio::time::timeout(Duration::from_millis(200), executor.reserve()).await;
    assert!(waited.is_err(), "a second place was given");
    running.stop(StopReason::Cancelled);
    end(running).await;
    tokio::time::timeout(PATIENCE, executor.reserve())
        .await
        .unwrap();
}

#[tokio::test]
async fn shutdown_ends_every_phase() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(FakeSink::default());
    let executor = executor(dir.path(), 2);
    let running = start(&executor, "wait", &sink).await;
    begun(&sink).await;
    tokio::time::timeout(PATIENCE, executor.shutdown())
        .await
        .unwrap();
    end(running).await;
}

#[tokio::test]
async fn artifacts_travel_both_ways_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(FakeSink::default());
    let executor = executor(dir.path(), 1);
    let path = dir.path().join("artifact");
    let bytes: Vec<u8> = (0_u32..1_300_000).map(|i| (i % 251) as u8).collect();
    std::fs::File::create(&path)
        .unwrap()
        .write_all(&bytes)
        .unwrap();
    let mut secrets = secrets();
    secrets.artifacts.push(ArtifactFile {
        name: "out".parse().unwrap(),
        kind: ArtifactKind::File,
        path,
    });
    let place = executor.reserve().await;
    let running = executor
        .start(place, order("artifacts"), secrets, Arc::clone(&sink) as _)
        .await
        .unwrap();
    end(running).await;
    let chunks = sink.artifacts.lock().unwrap();
    let echoed: Vec<u8> = chunks
        .iter()
        .flat_map(|chunk| chunk.data.to_vec())
        .collect();
    assert_eq!(echoed, bytes);
}

/// Cases 6 and 25: a session process that outlived its executor is found and ended.
#[tokio::test]
async fn case_6_and_25_a_left_session_process_is_found_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let executor = executor(dir.path(), 1);
    let mut left = std::process::Command::new("sleep")
        .arg("600")
        .process_group(0)
        .spawn()
        .unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", left.id())).unwrap();
    let started: u64 = stat
        .rsplit_once(") ")
        .unwrap()
        .1
        .split(' ')
        .nth(19)
        .unwrap()
        .parse()
        .unwrap();
    let journal = dir.path().join("sessions");
    let pid = left.id();
    let record = |started: u64| {
        serde_json::json!({"pid": pid, "started": started, "phase": "old"}).to_string()
    };
    std::fs::write(journal.join("recycled.json"), record(started + 1)).unwrap();
    // Sandboxes that other processes of this machine left are found by any executor.
    let sessions = async || {
        let found = executor.sweep(&[]).await.into_iter();
        let of_sessions = |orphan: &Orphan| orphan.kind == OrphanKind::SessionProcess;
        found.filter(of_sessions).collect::<Vec<_>>()
    };
    assert!(sessions().await.is_empty(), "a recycled id is not ours");
    assert!(left.try_wait().unwrap().is_none());
    std::fs::write(journal.join("left.json"), record(started)).unwrap();
    let orphans = sessions().await;
    assert_eq!(orphans.len(), 1);
    assert_eq!(orphans[0].left, None);
    assert!(!left.wait().unwrap().success());
    assert!(sessions().await.is_empty(), "safe to repeat");
}
