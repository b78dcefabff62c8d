//! A serving process that is killed with a real sandbox in flight.

use std::{
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

use bulkhead_server::{Caller, RunStatus};

use super::machine::{self, new_run};
use crate::repo;

/// A phase that waits on its first attempt and succeeds on its second; its sleep is known by its number.
const WORKFLOW: &str = "name: Killed\nphases:\n  - name: wait\n    run: echo begun; if test $BULKHEAD_PHASE_ATTEMPT = 1; then sleep 98763; fi; echo done > done.txt\n    gate: none\n";

/// Not a test: the parent starts it.
#[test]
#[ignore = "the body of the server process that another test kills"]
fn server() {
    let root = PathBuf::from(std::env::var_os("BULKHEAD_TEST_E2E").unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (plane, _) = machine::open(&root).await;
        let run = plane
            .create_run(&Caller::local(), new_run(&root))
            .await
            .unwrap();
        let id = run.id.parse().unwrap();
        machine::until_log(&plane, &id, "wait", "begun").await;
        std::fs::write(root.join("begun"), run.id).unwrap();
        std::future::pending::<()>().await;
    });
}

fn start(root: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "e2e::recovery::server",
            "--ignored",
            "--nocapture",
        ])
        .env("BULKHEAD_TEST_E2E", root)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// R14, cases 6 and 25: after `kill -9` nothing of the sandbox lives on, and the phase is dispatched again from the
/// branch to the one right end.
#[tokio::test]
async fn case_6_and_25_a_killed_server_leaves_no_sandbox_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    repo::with_workflow(&root.join("repo"), WORKFLOW);
    let mut child = start(root);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !root.join("begun").exists() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "the server ended by itself"
        );
        assert!(Instant::now() < deadline, "the phase never began");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (plane, recovered) = machine::open(root).await;
    assert_eq!(recovered.dispatched_again.len(), 1, "{recovered:?}");
    let run = std::fs::read_to_string(root.join("begun"))
        .unwrap()
        .parse()
        .unwrap();
    let ended = machine::until(&plane, &run, |run| {
        run.status.is_final() || run.gate.is_some()
    })
    .await;
    assert_eq!(ended.status, RunStatus::Completed, "{ended:?}");
    assert_eq!(ended.phases[0].attempt, 2);
    assert_eq!(machine::processes_with("98763"), Vec::<String>::new());
    assert_eq!(
        repo::subjects(&root.join("repo"), &ended.branch.unwrap()).len(),
        1
    );
    plane.shutdown().await;
}
