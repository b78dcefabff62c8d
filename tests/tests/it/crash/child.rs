//! The child: the real control plane, the fake executor, and a client that answers gates.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use bulkhead_model::{GateId, RunId};
use bulkhead_server::{
    Answer, Caller, Code, Config, ControlPlane, DecisionRequest, FailPoints, GateWhyView, NewRun,
    RunView,
};
use serde::{Deserialize, Serialize};

use crate::fake::{FakeExecutor, Witness};

/// What the child is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Script {
    root: PathBuf,
    fail: Fail,
    lease: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Fail {
    Never,
    /// Write down every fail point.
    Trace,
    /// SIGKILL itself at the nth passing of a point.
    Kill(String, u32),
}

impl Script {
    pub(super) fn new(root: &Path, fail: Fail, lease: Duration) -> Self {
        let root = root.to_owned();
        Self { root, fail, lease }
    }

    pub(super) fn save(&self) {
        std::fs::write(self.root.join("script"), serde_json::to_vec(self).unwrap()).unwrap();
    }

    fn load(root: &Path) -> Self {
        serde_json::from_slice(&std::fs::read(root.join("script")).unwrap()).unwrap()
    }

    fn fail_points(&self) -> FailPoints {
        match &self.fail {
            Fail::Never => FailPoints::default(),
            Fail::Trace => FailPoints::trace(&self.root.join("trace")).unwrap(),
            Fail::Kill(name, nth) => FailPoints::kill_at(name, *nth),
        }
    }
}

/// Longer than any pause of a slow machine.
pub(super) const LONG_LEASE: Duration = Duration::from_secs(60);

/// What was acknowledged, on disk before the child goes on.
struct Acks(Mutex<std::fs::File>);

impl Acks {
    fn open(path: &Path) -> Self {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        Self(Mutex::new(file))
    }
}

impl Witness for Acks {
    fn acknowledged(&self, line: &str) {
        let mut file = self.0.lock().unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// Not a test: the parent starts it.
#[test]
#[ignore = "the body of the server process that the crash tests start"]
fn server() {
    let root = PathBuf::from(std::env::var_os("BULKHEAD_TEST_CRASH").unwrap());
    tracing_subscriber::fmt()
        .with_env_filter("bulkhead=debug,info")
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(live(&Script::load(&root)));
}

async fn live(script: &Script) {
    let root = &script.root;
    let said = Arc::new(Acks::open(&root.join("said")));
    let executor = FakeExecutor::new(&root.join("work"), said);
    let mut config = Config::new(root.join("data"), root.join("run"));
    config.lease_ttl = script.lease;
    config.fail_points = script.fail_points();
    let plane = ControlPlane::open(config, Arc::new(executor))
        .await
        .unwrap();
    plane.start().await.unwrap();
    let decided = Acks::open(&root.join("decided"));
    let run = create(&plane, root).await;
    let end = answer_until_it_ends(&plane, run, &decided, script.lease).await;
    std::fs::write(root.join("end"), serde_json::to_vec(&end).unwrap()).unwrap();
    plane.shutdown().await;
}

/// The client asks for its run again in each life; the key makes it one.
async fn create(plane: &ControlPlane, root: &Path) -> RunView {
    let new = NewRun {
        repo: Some(root.join("repo").display().to_string()),
        base: Some("main".to_owned()),
        branch: Some("bulkhead/crash".to_owned()),
        workflow: None,
        inputs: Default::default(),
        agent: None,
        idempotency_key: Some("the one run".to_owned()),
    };
    plane.create_run(&Caller::local(), new).await.unwrap()
}

async fn answer_until_it_ends(
    plane: &ControlPlane,
    mut run: RunView,
    decided: &Acks,
    lease: Duration,
) -> RunView {
    let id = run.id.parse().unwrap();
    loop {
        if let Some(gate) = &run.gate {
            let gate_id = gate.id.parse().unwrap();
            // It may be answered by now: then the next look shows it.
            if let Ok(shown) = plane.gate(id, gate_id).await {
                // With a long lease, nothing may go so wrong that a phase parks.
                let is_review = shown.why == GateWhyView::Review;
                assert!(is_review || lease < LONG_LEASE, "a phase parked: {shown:?}");
                let request = DecisionRequest {
                    answer: Answer::Approve,
                    binding: shown.binding.unwrap(),
                };
                decide(plane, id, gate_id, &request).await;
                decided.acknowledged(&gate.id);
                // Case 61: the same answer again is the same answer.
                decide(plane, id, gate_id, &request).await;
            }
        }
        if run.status.is_final() {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        run = plane.run(id).await.unwrap();
    }
}

/// Asks again while the server's disk is full, as its problem says.
async fn decide(plane: &ControlPlane, run: RunId, gate: GateId, request: &DecisionRequest) {
    loop {
        match plane
            .decide(&Caller::local(), run, gate, request.clone())
            .await
        {
            Ok(_) => return,
            Err(problem) if problem.code() == Code::StorageFull => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(problem) => panic!("a decision was refused: {problem:?}"),
        }
    }
}
