//! Whole runs with the real executor, real sessions and real sandboxes.

mod caps;
mod http;
mod machine;
mod real_agent;
mod recovery;

use std::time::Duration;

use bulkhead_server::{Answer, Caller, GateWhyView, PhaseStatus, RunStatus};
use machine::Machine;

use crate::repo;

/// R2, R19: a repository goes through a workflow of commands, and the branch holds one commit a phase.
#[tokio::test]
async fn r2_a_run_of_commands_leaves_its_commits_on_its_branch() {
    let machine = Machine::start(
        "name: Sample\nphases:\n  - name: plan\n    run: echo a plan > plan.txt\n    gate: none\n  - name: build\n    run: test -f plan.txt && echo built > built.txt\n    gate: none\n",
    )
    .await;
    let run = machine.run().await;
    let ended = machine
        .until(&run, |run| run.status.is_final() || run.gate.is_some())
        .await;
    assert_eq!(
        ended.status,
        RunStatus::Completed,
        "{ended:?}\n{}",
        machine.log(&run, "plan").await
    );
    let branch = ended.branch.unwrap();
    let repository = machine.repository();
    assert_eq!(repo::subjects(&repository, &branch).len(), 2);
    let built = repo::git(&repository, &["show", &format!("{branch}:built.txt")]);
    assert_eq!(built, "built");
    machine.stop().await;
}

/// R2, case 61: a failed phase parks; Approve runs it again, and exactly it.
#[tokio::test]
async fn r2_a_failed_phase_parks_and_approve_runs_it_again() {
    let machine = Machine::start(
        "name: Twice\nphases:\n  - name: flaky\n    run: echo attempt $BULKHEAD_PHASE_ATTEMPT; test $BULKHEAD_PHASE_ATTEMPT = 2\n    gate: none\n",
    )
    .await;
    let run = machine.run().await;
    let parked = machine.until(&run, |run| run.gate.is_some()).await;
    assert!(matches!(
        parked.gate.unwrap().why,
        GateWhyView::Parked { .. }
    ));
    machine.answer(&run, Answer::Approve).await;
    let ended = machine.until(&run, |run| run.status.is_final()).await;
    assert_eq!(ended.status, RunStatus::Completed);
    assert_eq!(ended.phases[0].attempt, 2);
    assert!(machine.log(&run, "flaky").await.contains("attempt 2"));
    machine.stop().await;
}

/// R2: a comment sends the phase back and reaches it; reject ends the run.
#[tokio::test]
async fn r2_send_back_brings_the_comment_and_reject_ends() {
    let machine = Machine::start(
        "name: Review\nphases:\n  - name: write\n    run: echo \"comment=<$BULKHEAD_COMMENT>\" | tee -a note.txt\n",
    )
    .await;
    let run = machine.run().await;
    let waiting = machine.until(&run, |run| run.gate.is_some()).await;
    assert_eq!(waiting.gate.unwrap().why, GateWhyView::Review);
    let comment = "shorter, please".to_owned();
    machine.answer(&run, Answer::SendBack { comment }).await;
    machine
        .until(&run, |run| run.gate.is_some() && run.phases[0].attempt == 2)
        .await;
    assert!(
        machine
            .log(&run, "write")
            .await
            .contains("comment=<shorter, please>")
    );
    machine.answer(&run, Answer::Reject).await;
    let ended = machine.until(&run, |run| run.status.is_final()).await;
    assert_eq!(ended.status, RunStatus::Rejected);
    machine.stop().await;
}

/// R14: an agent that pushes by itself with its phase's token and then fails has not done its phase: it parks, and
/// goes on from its own commit.
#[tokio::test]
async fn r14_an_agent_that_pushes_by_itself_and_fails_is_not_done() {
    let workflow = machine::pushes_by_itself("exit 1");
    let machine = Machine::start_with(&workflow, machine::some_model).await;
    let run = machine.run().await;
    let parked = machine
        .until(&run, |run| run.gate.is_some() || run.status.is_final())
        .await;
    let log = machine.log(&run, "half").await;
    assert!(log.contains("begun"), "{log}");
    assert!(
        matches!(
            parked.gate.as_ref().unwrap().why,
            GateWhyView::Parked { .. }
        ),
        "{parked:?}"
    );
    let branch = parked.branch.unwrap();
    assert_eq!(repo::subjects(&machine.repository(), &branch), ["half"]);
    machine.answer(&run, Answer::Approve).await;
    let ended = machine.until(&run, |run| run.status.is_final()).await;
    assert_eq!(ended.status, RunStatus::Completed, "{ended:?}");
    assert_eq!(
        repo::subjects(&machine.repository(), &branch),
        ["half", "Pushes: half"]
    );
    machine.stop().await;
}

/// R15, case 17: a cancel ends everything in the sandbox.
#[tokio::test]
async fn case_17_cancel_leaves_no_process_of_the_sandbox() {
    let machine = Machine::start(
        "name: Long\nphases:\n  - name: wait\n    run: echo begun; setsid sleep 98761 & sleep 98761\n",
    )
    .await;
    let run = machine.run().await;
    machine.until_log(&run, "wait", "begun").await;
    machine.plane.cancel(&Caller::local(), run).await.unwrap();
    let ended = machine.until(&run, |run| run.status.is_final()).await;
    assert_eq!(ended.status, RunStatus::Cancelled);
    assert_eq!(machine::processes_with("98761"), Vec::<String>::new());
    machine.stop().await;
}

/// R17, case 29: a declared secret is masked in the stored log, also when it is cut in two writes.
#[tokio::test]
async fn r17_a_secret_is_masked_in_the_log() {
    let machine = Machine::start(
        "name: Secret\nsecrets: [DEPLOY_KEY]\nphases:\n  - name: leak\n    secrets: [DEPLOY_KEY]\n    run: echo \"key=$DEPLOY_KEY\"; printf 'correct-horse-'; sleep 0.2; echo battery-staple-42; printf %s $DEPLOY_KEY | base64\n    gate: none\n",
    )
    .await;
    let value = "correct-horse-battery-staple-42";
    let name = "DEPLOY_KEY".parse().unwrap();
    machine
        .plane
        .set_secret(&Caller::local(), &name, value.into())
        .await
        .unwrap();
    let run = machine.run().await;
    machine
        .until(&run, |run| run.status.is_final() || run.gate.is_some())
        .await;
    let log = machine.log(&run, "leak").await;
    assert!(log.contains("key=[masked:DEPLOY_KEY]"), "{log}");
    assert!(
        !log.contains("battery-staple") && !log.contains("Y29ycmVjdC1ob3JzZS"),
        "{log}"
    );
    machine.stop().await;
}

/// Two runs at once on one repository do not meet.
#[tokio::test]
async fn r15_two_runs_at_once_keep_apart_and_stop_all_ends_both() {
    let machine = Machine::start(
        "name: Pair\nphases:\n  - name: first\n    run: echo $BULKHEAD_RUN_ID > id.txt\n    gate: none\n  - name: wait\n    run: echo begun; sleep 98762\n",
    )
    .await;
    let (one, other) = (machine.run().await, machine.run().await);
    for run in [&one, &other] {
        machine.until_log(run, "wait", "begun").await;
        let view = machine.plane.run(*run).await.unwrap();
        assert_eq!(view.phases[0].status, PhaseStatus::Done);
        let id = repo::git(
            &machine.repository(),
            &["show", &format!("{}:id.txt", view.branch.unwrap())],
        );
        assert_eq!(id, run.to_string());
    }
    let stopped = machine.plane.stop_all(&Caller::local()).await.unwrap();
    assert_eq!(stopped.runs.len(), 2);
    for run in [&one, &other] {
        let ended = machine.until(run, |run| run.status.is_final()).await;
        assert_eq!(ended.status, RunStatus::Cancelled);
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(machine::processes_with("98762"), Vec::<String>::new());
    machine.stop().await;
}
