//! Gates from the command line (R2, cases 61 and 62): without a terminal a run stops there with 4, and an answer
//! from another process goes on.

use std::path::PathBuf;

use serde_json::Value;

use crate::program::{World, git};

/// The demo, stopped at its gate.
fn at_the_gate(world: &World) -> (String, PathBuf) {
    let ended = world.run(&["demo", "--json"]).expect(4);
    let result = ended.json();
    assert_eq!(result["run"]["status"], "waiting");
    assert_eq!(result["exit_code"], 4);
    assert!(
        ended.stderr.contains("bulkhead runs approve"),
        "how to go on is not said: {}",
        ended.stderr
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        text(&result["run"]["id"]),
        text(&result["repository"]).into(),
    )
}

#[test]
fn case_61_an_answer_from_another_process_goes_on_and_completes() {
    let world = World::new();
    let (id, repo) = at_the_gate(&world);
    let listed = world.run(&["runs", "list", "--json"]).expect(0).json();
    assert_eq!(listed["runs"][0]["id"], id.as_str());
    assert_eq!(listed["runs"][0]["status"], "waiting");
    let diff = world
        .run(&["runs", "diff", &id[..13], "--json"])
        .expect(0)
        .json();
    assert_eq!(
        diff["files"],
        serde_json::json!([{"path": "PLAN.md", "change": "added"}])
    );

    let stale = world
        .run(&["runs", "approve", &id, "--commit", "0000000"])
        .expect(2);
    assert!(stale.stderr.contains("not at 0000000"), "{}", stale.stderr);
    let approved = world
        .run(&["runs", "approve", &id, "--json"])
        .expect(0)
        .json();
    assert_eq!(approved["run"]["status"], "completed");
    let attempts: Vec<_> = approved["run"]["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["attempt"].as_u64())
        .collect();
    assert_eq!(attempts, [Some(1); 3], "each phase ran once");
    let again = world.run(&["runs", "approve", &id]).expect(2);
    assert!(
        again.stderr.contains("waits at no gate"),
        "{}",
        again.stderr
    );

    let log = world.run(&["runs", "logs", "--phase", "test"]).expect(0);
    assert!(
        log.stdout.contains("ok: greet --loud Ada"),
        "{}",
        log.stdout
    );
    let landed = world.run(&["runs", "land", "--json"]).expect(0).json();
    assert_eq!(landed["outcome"], "landed");
    assert!(git(&repo, &["show", "main:greet"]).contains("--loud"));
    assert_eq!(
        world.run(&["runs", "land", "--json"]).expect(0).json()["outcome"],
        "up_to_date"
    );
}

#[test]
fn r2_sent_back_the_phase_runs_again_and_rejected_the_run_ends() {
    let world = World::new();
    let (id, _) = at_the_gate(&world);
    world.run(&["runs", "send-back"]).expect(2);
    let sent = world
        .run(&["runs", "send-back", "--comment", "Say more.", "--json"])
        .expect(4)
        .json();
    assert_eq!(sent["run"]["phases"][0]["attempt"], 2);
    assert_eq!(sent["run"]["phases"][0]["comment"], "Say more.");
    let rejected = world
        .run(&["runs", "reject", &id, "--json"])
        .expect(0)
        .json();
    assert_eq!(rejected["status"], "rejected");
    assert_eq!(
        world.run(&["runs", "show", "--json"]).expect(0).json()["status"],
        "rejected"
    );
}
