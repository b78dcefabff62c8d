//! Caps on what a run may spend.

use bulkhead_server::{PhaseStatus, RunStatus};

use super::machine::Machine;
use crate::repo;

/// Says what it has used, then goes on for ever.
const STEPS: &str =
    "steps:\n  - say: begun\n  - usage: {tokens: 1000, cost_usd: 0.75}\n  - sleep_ms: 3600000\n";

/// R8: a run whose agents have used what it may cost is stopped while they work, and fails with that reason.
#[tokio::test]
async fn r8_a_run_that_reaches_its_cap_on_cost_is_stopped_and_fails() {
    let machine = Machine::start(
        "name: Costly\ncaps: {costUsd: 0.5}\nphases:\n  - name: spend\n    agent:\n      name: scripted\n      command: [/run/bulkhead/bin/bulkhead, agent, scripted, steps.yaml]\n    prompt: go\n  - name: never\n    run: 'true'\n",
    )
    .await;
    let repository = machine.repository();
    std::fs::write(repository.join("steps.yaml"), STEPS).unwrap();
    repo::git(&repository, &["add", "."]);
    repo::git(&repository, &["commit", "--quiet", "-m", "Steps"]);
    let run = machine.run().await;
    let ended = machine
        .until(&run, |run| run.status.is_final() || run.gate.is_some())
        .await;
    assert_eq!(ended.status, RunStatus::Failed, "{ended:#?}");
    assert!(
        ended.reason.as_ref().unwrap().contains("cost"),
        "{ended:#?}"
    );
    assert_ne!(ended.phases[1].status, PhaseStatus::Done);
    assert!(ended.spent.cost_usd >= 0.75, "{ended:#?}");
    machine.stop().await;
}
