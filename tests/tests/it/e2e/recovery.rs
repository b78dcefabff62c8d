//! A serving process that is killed with a real sandbox in flight.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use bulkhead_server::{Caller, ControlPlane, RunStatus, RunView};

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
        let (plane, _) = machine::open_with(&root, machine::some_model).await;
        let run = plane
            .create_run(&Caller::local(), new_run(&root))
            .await
            .unwrap();
        let id = run.id.parse().unwrap();
        let phase = &run.phases[0].name;
        machine::until_log(&plane, &id, phase, "begun").await;
        std::fs::write(root.join("begun"), run.id).unwrap();
        std::future::pending::<()>().await;
    });
}

/// R14: a push that an agent made on the way does not make its phase done when the server dies after it; the phase
/// runs again from where the branch is.
#[tokio::test]
async fn r14_an_agents_own_push_before_a_crash_does_not_complete_its_phase() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    repo::with_workflow(
        &root.join("repo"),
        &machine::pushes_by_itself("sleep 98764"),
    );
    kill_when_begun(root).await;
    let (plane, recovered) = machine::open_with(root, machine::some_model).await;
    assert_eq!(recovered.completed, Vec::<String>::new());
    let ended = until_over(&plane, root).await;
    assert_eq!(ended.status, RunStatus::Completed, "{ended:?}");
    assert_eq!(ended.phases[0].attempt, 2);
    assert_eq!(
        repo::subjects(&root.join("repo"), &ended.branch.unwrap()),
        ["half", "Pushes: half"]
    );
    plane.shutdown().await;
}

/// Starts a server on `root` and kills it when its run's phase has begun.
async fn kill_when_begun(root: &Path) {
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
}

async fn until_over(plane: &ControlPlane, root: &Path) -> RunView {
    let run = std::fs::read_to_string(root.join("begun")).unwrap();
    let is_over = |run: &RunView| run.status.is_final() || run.gate.is_some();
    machine::until(plane, &run.parse().unwrap(), is_over).await
}

fn start(root: &Path) -> Child {
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
    kill_when_begun(root).await;
    let (plane, recovered) = machine::open(root).await;
    assert_eq!(recovered.dispatched_again.len(), 1, "{recovered:?}");
    let ended = until_over(&plane, root).await;
    assert_eq!(ended.status, RunStatus::Completed, "{ended:?}");
    assert_eq!(ended.phases[0].attempt, 2);
    assert_eq!(machine::processes_with("98763"), Vec::<String>::new());
    assert_eq!(
        repo::subjects(&root.join("repo"), &ended.branch.unwrap()).len(),
        1
    );
    plane.shutdown().await;
}
