//! Hosts, for real: the sandbox here, the others in modules.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod conformance;
mod docker;
mod local;
mod node;

mod sftp;
mod ssh;
mod supervisor;
mod wrapped;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bulkhead_host::{
    Command, ExitStatus, Host as _, HostError, SandboxHost, Signal, Stdio, Target,
};
use bulkhead_model::{Limits, SandboxId};
use bulkhead_sandbox::{EngineConfig, Plan, Workspace};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The host, and how often its sandbox came into being.
fn host(dir: &Path) -> (SandboxHost, Arc<AtomicU32>) {
    let id = SandboxId::from_uuid(uuid::Uuid::now_v7());
    let plan = Plan::new(id, Limits::default(), Workspace::Tmpfs);
    let made = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&made);
    let stands = Box::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let config = EngineConfig::new(dir.join("engine"));
    (SandboxHost::new(config, plan, stands), made)
}

#[tokio::test]
async fn h2_h3_describing_and_tearing_down_an_unused_host_do_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (host, made) = host(dir.path());
    assert!(host.describe().starts_with("sandbox "));
    host.teardown().await.unwrap();
    assert!(!host.is_connected());
    assert_eq!(made.load(Ordering::SeqCst), 0);
    assert!(!dir.path().join("engine").exists());
}

#[tokio::test]
async fn h1_h2_concurrent_first_uses_make_one_sandbox_and_run_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (host, made) = host(dir.path());
    let uses = (0..8).map(|n| {
        let command = Command::shell(&format!("echo {n} > /tmp/{n}; exit {n}"));
        async { host.spawn(command).await.unwrap().control.wait().await }
    });
    let statuses = futures::future::join_all(uses).await;
    let expected: Vec<_> = (0..8).map(ExitStatus::Code).collect();
    assert_eq!(statuses, expected);
    assert_eq!(made.load(Ordering::SeqCst), 1);
    let mut ls = host.spawn(Command::new(["ls", "/tmp"])).await.unwrap();
    let mut seen = String::new();
    ls.stdout
        .as_mut()
        .unwrap()
        .read_to_string(&mut seen)
        .await
        .unwrap();
    assert_eq!(seen, "0\n1\n2\n3\n4\n5\n6\n7\n");
    host.teardown().await.unwrap();
    let after = host.spawn(Command::new(["true"])).await;
    assert!(matches!(after, Err(HostError::Gone { .. })));
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h1_streams_environment_directory_and_signals() {
    let dir = tempfile::tempdir().unwrap();
    let (host, _) = host(dir.path());
    let command =
        Command::shell("pwd; echo $WORD; cat; trap 'exit 9' TERM; while :; do sleep 0.1; done")
            .cwd("/tmp")
            .env("WORD", "here")
            .stdio(Stdio::PIPES);
    let mut process = host.spawn(command).await.unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(b"typed\n").await.unwrap();
    drop(stdin);
    let mut seen = vec![0; "/tmp\nhere\ntyped\n".len()];
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut seen)
        .await
        .unwrap();
    assert_eq!(seen, b"/tmp\nhere\ntyped\n");
    // The trap is set only after the last line was read, so the signal is repeated until it is seen.
    let ended = async { process.control.wait().await };
    tokio::pin!(ended);
    let status = loop {
        process
            .control
            .signal(Signal::Terminate, Target::Group)
            .await
            .unwrap();
        tokio::select! {
            status = &mut ended => break status,
            () = tokio::time::sleep(std::time::Duration::from_millis(100)) => {}
        }
    };
    assert!(
        matches!(status, ExitStatus::Code(9) | ExitStatus::Signal(15)),
        "{status}"
    );
    let missing = host.spawn(Command::new(["no-such-program"])).await;
    assert!(
        matches!(missing, Err(HostError::NotFound { program, .. }) if program == "no-such-program")
    );
    host.teardown().await.unwrap();
}
