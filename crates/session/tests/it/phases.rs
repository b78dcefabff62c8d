//! Whole phases in real sandboxes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bulkhead_fake_model::Script;
use bulkhead_model::{EndReason, Stage, Stream};
use bulkhead_session::wire::{ArtifactChunk, ArtifactKind, FailureKind};

use crate::world::{Cancel, World, command, run};

async fn world() -> World {
    World::new(Script::Say("hello".to_owned())).await
}

#[tokio::test]
async fn r2_a_command_phase_clones_works_commits_and_pushes() {
    let world = world().await;
    let before = world.tip();
    let order = world.order(command("cat README.md && echo changed > new.txt"));
    let phase = world.run(order).await;
    phase.succeeded();
    assert_eq!(phase.output(Stream::Stdout), "hello\n");
    assert_eq!(world.file("new.txt"), "changed");
    assert_ne!(world.tip(), before);
    assert_eq!(phase.report.head, Some(world.tip()));
    let outcome = phase.report.outcome.as_ref().unwrap();
    assert_eq!(outcome.reason, EndReason::Exit { code: 0 });
    assert_eq!(
        phase.stages(),
        [
            Stage::SessionStarted,
            Stage::SandboxReady,
            Stage::WorkspaceReady,
            Stage::AgentStarted,
            Stage::AgentFirstEvent,
            Stage::AgentEnded,
            Stage::Pushed,
            Stage::SandboxGone
        ]
    );
}

#[tokio::test]
async fn r2_a_failing_command_is_not_pushed() {
    let world = world().await;
    let before = world.tip();
    let order = world.order(command("echo half > half.txt; exit 7"));
    let phase = world.run(order).await;
    assert_eq!(phase.failure(), "the command exited with code 7");
    let outcome = phase.report.outcome.as_ref().unwrap();
    assert_eq!(outcome.reason, EndReason::Exit { code: 7 });
    assert_eq!((world.tip(), phase.report.head.clone()), (before, None));
}

#[tokio::test]
async fn case_39_a_branch_that_is_elsewhere_is_refused_before_the_work() {
    let world = world().await;
    let mut order = world.order(command("echo never"));
    order.git.as_mut().unwrap().start = "0".repeat(40);
    let phase = world.run(order).await;
    assert!(
        phase.failure().contains("not at the commit"),
        "{}",
        phase.failure()
    );
    assert_eq!(phase.output(Stream::Stdout), "");
}

#[tokio::test]
async fn case_18_and_20_what_the_agent_leaves_running_neither_holds_nor_changes_the_phase() {
    let world = world().await;
    let script = "setsid sh -c 'sleep 3; echo late > late.txt' & \
                  nohup sh -c 'sleep 3; echo late > later.txt' >/dev/null 2>&1 & \
                  echo done > done.txt";
    let begun = Instant::now();
    let phase = world.run(world.order(command(script))).await;
    phase.succeeded();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(world.file("done.txt"), "done");
    let tree = crate::world::git(
        &world.dir.path().join("user"),
        &["ls-tree", "--name-only", "refs/heads/bulkhead/run-1"],
    );
    assert_eq!(tree, "README.md\ndone.txt");
}

#[tokio::test]
async fn case_17_a_cancelled_phase_is_gone_with_all_it_started() {
    let world = world().await;
    let order = world.order(command(
        "trap '' TERM; echo here; while :; do sleep 0.2; done",
    ));
    let begun = Instant::now();
    let phase = run(world.delivery(order), vec![], Cancel::WhenItSpeaks).await;
    let failure = phase.report.failure.as_ref().unwrap();
    assert_eq!(failure.kind, FailureKind::Cancelled);
    assert_eq!(
        phase.report.outcome.as_ref().unwrap().reason,
        EndReason::Cancelled
    );
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn the_time_limit_and_silence_are_reasons_of_their_own() {
    let world = world().await;
    let mut order = world.order(command("while :; do echo tick; sleep 0.2; done"));
    order.limits.time_ms = 2_000;
    let phase = world.run(order).await;
    assert_eq!(
        phase.report.failure.as_ref().unwrap().kind,
        FailureKind::Limit
    );
    assert_eq!(
        phase.report.outcome.as_ref().unwrap().reason,
        EndReason::Timeout
    );
    assert!(
        phase.failure().contains("ran out of time"),
        "{}",
        phase.failure()
    );

    let mut order = world.order(command("sleep 60"));
    order.limits.idle_ms = 1_000;
    let phase = world.run(order).await;
    assert_eq!(
        phase.report.outcome.as_ref().unwrap().reason,
        EndReason::Idle
    );
    assert!(
        phase.failure().contains("silent for too long"),
        "{}",
        phase.failure()
    );
}

#[tokio::test]
async fn artifacts_are_handed_on_in_a_run_without_a_repository() {
    let world = world().await;
    let mut order = world.order(command(
        "cat /run/bulkhead/artifacts/plan && mkdir -p out/sub && echo one > out/sub/a && \
         head -c 1000000 /dev/zero > big",
    ));
    order.git = None;
    order.artifacts_in = vec!["plan".parse().unwrap()];
    order.artifacts_out = [("tree", "out"), ("big", "big")]
        .map(|(name, path)| (name.parse().unwrap(), path.to_owned()))
        .into();
    let chunk = |data: &'static str, last| ArtifactChunk {
        name: "plan".parse().unwrap(),
        kind: ArtifactKind::File,
        last,
        data: data.into(),
    };
    let chunks = vec![chunk("the ", false), chunk("plan", true)];
    let phase = run(world.delivery(order), chunks, Cancel::Never).await;
    phase.succeeded();
    assert_eq!(phase.output(Stream::Stdout), "the plan");
    let sizes: Vec<_> = phase
        .report
        .artifacts
        .iter()
        .map(|a| (a.name.as_str(), a.kind))
        .collect();
    assert_eq!(
        sizes,
        [
            ("big", ArtifactKind::File),
            ("tree", ArtifactKind::Directory)
        ]
    );
    let bytes = |wanted: &str| -> Vec<u8> {
        let chunks = phase
            .artifacts
            .iter()
            .filter(|chunk| chunk.name.as_str() == wanted);
        chunks.flat_map(|chunk| chunk.data.to_vec()).collect()
    };
    assert_eq!(bytes("big").len(), 1_000_000);

    // The directory goes into another sandbox as it came out of this one.
    let mut order = world.order(command("cat $BULKHEAD_ARTIFACTS/tree/sub/a"));
    order.git = None;
    order.artifacts_in = vec!["tree".parse().unwrap()];
    let whole = ArtifactChunk {
        name: "tree".parse().unwrap(),
        kind: ArtifactKind::Directory,
        last: true,
        data: bytes("tree").into(),
    };
    let phase = run(world.delivery(order), vec![whole], Cancel::Never).await;
    assert_eq!(phase.succeeded().output(Stream::Stdout), "one\n");
}

#[tokio::test]
async fn case_41_an_artifact_path_never_leaves_the_sandbox() {
    let world = world().await;
    for (path, words) in [
        ("../../etc/passwd", "is not a path in the workspace"),
        ("/etc/passwd", "is not a path in the workspace"),
        ("missing", "there is no file or directory ./missing"),
    ] {
        let mut order = world.order(command("true"));
        order.git = None;
        order.artifacts_out = [("a".parse().unwrap(), path.to_owned())].into();
        let phase = world.run(order).await;
        assert!(phase.failure().contains(words), "{}", phase.failure());
    }
    // A link leads to what the agent could read anyway: the sandbox's own files.
    let mut order = world.order(command("ln -s /etc/hostname link"));
    order.git = None;
    order.artifacts_out = [("a".parse().unwrap(), "link".to_owned())].into();
    let phase = world.run(order).await;
    let host = std::fs::read("/etc/hostname").unwrap_or_default();
    let taken: Vec<u8> = phase
        .artifacts
        .iter()
        .flat_map(|chunk| chunk.data.to_vec())
        .collect();
    assert!(host.is_empty() || taken != host);
}

#[tokio::test]
async fn an_executor_that_goes_away_takes_the_sandbox_with_it() {
    use bulkhead_session::{
        plug::NoScripts,
        run_worker,
        wire::{Outgoing, ToSession},
    };
    let world = world().await;
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let delivery = world.delivery(world.order(command("sleep 600")));
    let begun = Instant::now();
    let worker = run_worker(theirs.into_std().unwrap().into(), Arc::new(NoScripts));
    let executor = async {
        let mut out = Outgoing::<_, ToSession>::new(ours);
        out.send(ToSession::Order(Box::new(delivery)))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    };
    let (ended, ()) = tokio::join!(worker, executor);
    assert!(ended.is_err());
    assert!(begun.elapsed() < Duration::from_secs(30));
}
