//! Limits, and the one reason with its evidence. Small ones: the large bombs are in the escape suite.

use bulkhead_sandbox::{Cause, EndReason, ExitStatus, Limits, Plan, Workspace};

use crate::support::{PATIENCE, id, one, place, plan, say, shell, small};

fn limited(change: impl FnOnce(&mut Limits)) -> Plan {
    let mut limits = small();
    change(&mut limits);
    Plan::new(id(), limits, Workspace::Tmpfs)
}

/// Case 57: the main process goes over its memory limit.
#[tokio::test]
async fn case_57_oom_is_the_reason() {
    let place = place().await;
    let plan = limited(|limits| limits.memory_bytes = 32 << 20);
    let (said, outcome) = one(
        &place.engine,
        plan,
        "exec head -c 200000000 /dev/zero | tail",
    )
    .await;
    assert!(!said.status.success());
    assert_eq!(outcome.reason, EndReason::Oom, "{outcome:?}");
    assert!(
        outcome
            .evidence
            .iter()
            .any(|one| one.source.contains("oom_kill")),
        "{outcome:?}"
    );
    assert!(outcome.used.memory_peak_bytes <= 33 << 20);
}

/// Case 57: only a tool died; the agent went on and ended well. Its end is its own, with the death as evidence.
#[tokio::test]
async fn case_57_a_dead_tool_is_only_evidence() {
    let place = place().await;
    let plan = limited(|limits| limits.memory_bytes = 32 << 20);
    let (said, outcome) = one(
        &place.engine,
        plan,
        "(head -c 200000000 /dev/zero | tail) >/dev/null 2>&1; echo went on",
    )
    .await;
    assert_eq!(
        (said.status, said.stdout.as_str()),
        (ExitStatus::Code(0), "went on\n")
    );
    assert_eq!(outcome.reason, EndReason::Exit { code: 0 });
    assert!(
        outcome
            .evidence
            .iter()
            .any(|one| one.source.contains("oom_kill")),
        "{outcome:?}"
    );
}

/// Case 56: a process that cannot fork any more and fails of it.
#[tokio::test]
async fn case_56_the_limit_of_processes_is_the_reason() {
    let place = place().await;
    let plan = limited(|limits| limits.pids = 16);
    let (said, outcome) = one(
        &place.engine,
        plan,
        "for i in $(seq 40); do sleep 30 & done; echo unreachable; exit 3",
    )
    .await;
    assert!(!said.status.success(), "{said:?}");
    assert_eq!(outcome.reason, EndReason::PidsLimit, "{outcome:?}");
    assert!(outcome.used.pids_peak <= 16);
}

/// Case 48: a full workspace is the reason, in memory and on an image.
#[tokio::test]
async fn case_48_a_full_disk_is_the_reason() {
    let place = place().await;
    for workspace in [Workspace::Tmpfs, Workspace::Image] {
        let mut limits = small();
        limits.disk_bytes = 16 << 20;
        let plan = Plan::new(id(), limits, workspace.clone());
        let (said, outcome) = one(
            &place.engine,
            plan,
            "head -c 100000000 /dev/zero > big || exit 9",
        )
        .await;
        assert_eq!(said.status, ExitStatus::Code(9), "{said:?}");
        assert_eq!(
            outcome.reason,
            EndReason::DiskFull,
            "{workspace:?} {outcome:?}"
        );
    }
}

/// R4: the home directory counts against the same limit.
#[tokio::test]
async fn r4_home_is_limited_too() {
    let place = place().await;
    let plan = limited(|limits| limits.disk_bytes = 8 << 20);
    let (said, outcome) = one(&place.engine, plan, "head -c 100000000 /dev/zero > ~/big").await;
    assert!(!said.status.success());
    assert_eq!(outcome.reason, EndReason::DiskFull, "{outcome:?}");
}

/// A shared directory: what is added beyond the limit ends the sandbox, and files belong to the directory's owner.
#[tokio::test]
async fn case_48_a_shared_directory_is_watched() {
    let place = place().await;
    let shared = place.dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, Some(1777), Some(1777)).unwrap();
    let mut plan = limited(|limits| limits.disk_bytes = 8 << 20);
    plan.workspace = Workspace::Directory(shared.clone());
    let sandbox = place.engine.create(plan.clone()).await.unwrap();
    say(&sandbox, shell("echo mine > file")).await;
    let owner =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(shared.join("file")).unwrap());
    assert_eq!(owner, 1777);
    let single = say(&sandbox, shell("head -c 20000000 /dev/zero > one-big-file")).await;
    assert!(
        !single.status.success(),
        "no single file is larger than the limit"
    );
    // With the file of exactly the limit's size the first sandbox may be over it, and ended, by now.
    sandbox.end(bulkhead_sandbox::Cause::Cancelled).await;
    std::fs::remove_file(shared.join("one-big-file")).unwrap();
    plan.id = crate::support::id();
    let sandbox = place.engine.create(plan).await.unwrap();
    let _process = sandbox
        .spawn(shell(
            "i=0; while :; do i=$((i+1)); head -c 4000000 /dev/zero > f$i; done",
        ))
        .await
        .unwrap();
    let outcome = tokio::time::timeout(PATIENCE, sandbox.ended())
        .await
        .unwrap();
    assert_eq!(outcome.reason, EndReason::DiskFull, "{outcome:?}");
}

/// R15: the time limit is the sandbox's own, and counts from the first process.
#[tokio::test]
async fn r15_the_time_limit_ends_it() {
    let place = place().await;
    let sandbox = place
        .engine
        .create(limited(|limits| limits.time_ms = 500))
        .await
        .unwrap();
    let process = sandbox
        .spawn(shell("trap '' TERM; while :; do sleep 1; done"))
        .await
        .unwrap();
    let outcome = tokio::time::timeout(PATIENCE, sandbox.ended())
        .await
        .unwrap();
    assert_eq!(outcome.reason, EndReason::Timeout, "{outcome:?}");
    assert!(outcome.used.wall_ms >= 500);
    assert_eq!(process.wait().await, ExitStatus::SandboxEnded);
    assert_eq!(
        sandbox
            .end(Cause::Finished(ExitStatus::SandboxEnded))
            .await
            .reason,
        EndReason::Timeout
    );
}

/// The owner's causes come out as they went in.
#[tokio::test]
async fn the_owner_s_cause_is_the_reason() {
    let place = place().await;
    for (cause, reason) in [
        (Cause::Idle, EndReason::Idle),
        (Cause::Timeout, EndReason::Timeout),
        (Cause::Cancelled, EndReason::Cancelled),
    ] {
        let sandbox = place.engine.create(plan()).await.unwrap();
        assert_eq!(sandbox.end(cause).await.reason, reason);
    }
}

/// R4: the CPU limit bites: a busy loop gets its share and no more.
#[tokio::test]
async fn r4_cpu_is_limited() {
    let place = place().await;
    let plan = limited(|limits| limits.cpu_milli = 200);
    let (_, outcome) = one(&place.engine, plan, "timeout 2 sh -c 'while :; do :; done'").await;
    let share = outcome.used.cpu_ms * 1000 / outcome.used.wall_ms.max(1);
    assert!(share <= 350, "{share} thousandths of a CPU: {outcome:?}");
}

/// Case 46: whatever modes an agent leaves in its workspace, the sandbox goes away with it.
/// R4, case 46: files that their owner made unreadable or unwritable go with the sandbox.
#[tokio::test]
async fn case_46_unreadable_leftovers_do_not_stay() {
    let place = place().await;
    let mut plan = plan();
    plan.workspace = Workspace::Image;
    let (said, outcome) = one(
        &place.engine,
        plan,
        "mkdir d && touch d/f && chmod 000 d/f d && echo ok",
    )
    .await;
    assert_eq!(said.stdout, "ok\n");
    assert!(
        outcome
            .evidence
            .iter()
            .all(|one| one.source != "not removed"),
        "{outcome:?}"
    );
}
