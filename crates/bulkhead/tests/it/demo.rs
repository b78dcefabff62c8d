//! The demo, end to end: three phases in real sandboxes, one gate, real git, and the commits on the branch.

use serde_json::Value;

use crate::program::{World, git};

#[test]
fn r2_r4_the_demo_completes_and_its_branch_holds_the_agents_commits() {
    let world = World::new();
    let ended = world.run(&["demo", "--yes", "--json"]).expect(0);
    let result = ended.json();
    assert_eq!(result["run"]["status"], "completed");
    assert_eq!(result["exit_code"], 0);
    let phases: Vec<_> = result["run"]["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (&p["name"], &p["status"]))
        .collect();
    let done = Value::from("done");
    assert_eq!(
        phases,
        [
            (&"plan".into(), &done),
            (&"implement".into(), &done),
            (&"test".into(), &done)
        ]
    );

    let repo = result["repository"].as_str().unwrap();
    let branch = result["run"]["branch"].as_str().unwrap();
    let branch = branch.strip_prefix("refs/heads/").unwrap_or(branch);
    let log = git(
        repo,
        &["log", "--format=%an %s", &format!("main..{branch}")],
    );
    assert_eq!(
        log.lines().count(),
        result["commits"].as_array().unwrap().len()
    );
    assert!(log.lines().count() >= 2, "{log}");
    assert!(git(repo, &["show", &format!("{branch}:greet")]).contains("--loud"));
    assert!(git(repo, &["show", &format!("{branch}:PLAN.md")]).contains("A --loud option"));
    // The base and the checkout are as they were.
    assert_eq!(git(repo, &["status", "--porcelain"]), "");
    assert!(!git(repo, &["show", "main:greet"]).contains("--loud"));
}
