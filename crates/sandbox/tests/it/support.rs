//! What the tests share: an engine in a directory of its own, small limits, and a shell inside.

use std::{path::Path, time::Duration};

use bulkhead_sandbox::{
    Engine, EngineConfig, ExitStatus, Limits, Outcome, Output, Plan, Process, ProcessSpec, Sandbox,
    SandboxId, Workspace,
};
use tokio::io::AsyncReadExt as _;

/// No step of any test takes longer on a machine that works, however loaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An engine and the directory that it works in.
pub(crate) struct Place {
    pub(crate) engine: Engine,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) async fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::probe(EngineConfig::new(dir.path().join("run")))
        .await
        .unwrap();
    Place { engine, dir }
}

pub(crate) fn id() -> SandboxId {
    SandboxId::from_uuid(uuid::Uuid::now_v7())
}

/// Limits in which a shell and its tools have room, and a bomb does not take the machine.
pub(crate) fn small() -> Limits {
    Limits {
        memory_bytes: 256 << 20,
        pids: 64,
        disk_bytes: 32 << 20,
        time_ms: 60_000,
        ..Limits::default()
    }
}

pub(crate) fn plan() -> Plan {
    Plan::new(id(), small(), Workspace::Tmpfs)
}

pub(crate) fn shell(script: &str) -> ProcessSpec {
    ProcessSpec::new(["/bin/sh", "-c", script])
}

/// What one process said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a process to its end.
pub(crate) async fn say(sandbox: &Sandbox, spec: ProcessSpec) -> Said {
    let mut process = sandbox.spawn(spec).await.unwrap();
    hear(&mut process).await
}

pub(crate) async fn hear(process: &mut Process) -> Said {
    let all = async {
        let (stdout, stderr) =
            tokio::join!(read(process.stdout.take()), read(process.stderr.take()));
        Said {
            status: process.wait().await,
            stdout,
            stderr,
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap()
}

async fn read(output: Option<Output>) -> String {
    let mut text = Vec::new();
    if let Some(mut output) = output {
        output.read_to_end(&mut text).await.unwrap();
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A sandbox for one script: its words, and how the sandbox ended.
pub(crate) async fn one(engine: &Engine, plan: Plan, script: &str) -> (Said, Outcome) {
    let sandbox = engine.create(plan).await.unwrap();
    let said = say(&sandbox, shell(script)).await;
    let outcome = sandbox
        .end(bulkhead_sandbox::Cause::Finished(said.status))
        .await;
    (said, outcome)
}

/// Waits until a condition holds; fails the test when it never does.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < end, "never seen: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Every cgroup directory of the machine whose name begins with this sandbox's id.
pub(crate) fn groups_of(id: SandboxId) -> Vec<std::path::PathBuf> {
    let prefix = id.to_string();
    let mut found = Vec::new();
    for parent in cgroup_parents() {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                found.push(entry.path());
            }
        }
    }
    found
}

fn cgroup_parents() -> Vec<std::path::PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    hierarchies
        .chain([root.to_owned()])
        .map(|dir| dir.join("bulkhead"))
        .collect()
}
