//! Agents in real sandboxes: the scripted one here, the real command lines in `real_agents`.

use std::time::{Duration, Instant};

use bulkhead_fake_model::Script;
use bulkhead_model::{AgentEvent, EndReason, PhaseOrder, Work};
use bulkhead_session::{
    agents::{Overrides, resolve},
    wire::{Delivery, FailureKind},
};

use crate::world::{Cancel, Phase, World, git, program, run};

async fn world() -> World {
    World::new(Script::Say("hello".to_owned())).await
}

/// An order for the scripted agent; the steps are in the repository, as a user's would be.
fn scripted(world: &World, steps: &str) -> (PhaseOrder, String) {
    let overrides = Overrides {
        args: vec!["/home/agent/steps.yaml".to_owned()],
        ..Overrides::default()
    };
    let mut agent = resolve("scripted", &overrides).unwrap().spec;
    agent
        .home_files
        .insert("steps.yaml".to_owned(), steps.to_owned());
    let prompt = "greet the world".to_owned();
    (world.order(Work::Agent { agent, prompt }), steps.to_owned())
}

fn delivery(world: &World, order: PhaseOrder) -> Delivery {
    let mut delivery = world.delivery(order);
    delivery.program = Some(program());
    delivery
}

async fn play(world: &World, steps: &str) -> Phase {
    let (order, _) = scripted(world, steps);
    run(delivery(world, order), vec![], Cancel::Never).await
}

#[tokio::test]
async fn h8_r7_the_scripted_agent_works_in_the_sandbox_over_acp() {
    let world = world().await;
    let steps = r#"
steps:
  - think: The greeting is missing.
  - write: {path: greeting.txt, text: "{prompt}\n"}
  - run: git -c core.pager= log --oneline | wc -l
  - ask: May I?
  - usage: {tokens: 12, cost_usd: 0.01}
  - say: Done.
"#;
    let phase = play(&world, steps).await;
    phase.succeeded();
    assert_eq!(world.file("greeting.txt"), "greet the world");
    assert_eq!(phase.report.result.as_deref(), Some("Done."));
    assert_eq!(phase.report.usage.unwrap().cost_usd, Some(0.01));
    let outcome = phase.report.outcome.as_ref().unwrap();
    assert_eq!(outcome.reason, EndReason::Exit { code: 0 });
    let permission = AgentEvent::Permission {
        title: "May I?".to_owned(),
        answer: "allow_once".to_owned(),
    };
    assert!(phase.agent().contains(&permission), "{:#?}", phase.agent());
}

#[tokio::test]
async fn an_agents_own_commits_stay_and_what_it_left_is_committed_on_top() {
    let world = world().await;
    let steps = r#"
steps:
  - run: echo one > one && git add one && git commit -qm 'my own commit'
  - write: {path: two, text: "two\n"}
"#;
    play(&world, steps).await.succeeded();
    let log = git(
        &world.dir.path().join("user"),
        &["log", "--format=%s", "refs/heads/bulkhead/run-1"],
    );
    assert_eq!(log, "Phase implement\nmy own commit\nfirst");
}

#[tokio::test]
async fn case_23_an_agent_that_ignores_its_end_of_file_is_gone_within_two_seconds() {
    let world = world().await;
    let steps = "steps: [{ignore_eof: true}, {write: {path: a, text: a}}, {say: bye}]";
    let phase = play(&world, steps).await;
    phase.succeeded();
    assert_eq!(world.file("a"), "a");
    let at = |wanted| {
        phase.events.iter().find_map(|event| match event {
            bulkhead_model::PhaseEvent::Stage { stage, at_ms } if *stage == wanted => Some(*at_ms),
            _ => None,
        })
    };
    let finished = at(bulkhead_model::Stage::AgentFirstEvent).unwrap();
    let ended = at(bulkhead_model::Stage::AgentEnded).unwrap();
    assert!(ended - finished < 6_000, "{} ms", ended - finished);
}

#[tokio::test]
async fn a_failing_step_is_the_phases_failure_and_nothing_is_pushed() {
    let world = world().await;
    let before = world.tip();
    let phase = play(
        &world,
        "steps:\n  - write: {path: a, text: a}\n  - run: exit 3\n",
    )
    .await;
    let failure = phase.report.failure.as_ref().unwrap();
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert!(
        failure.message.contains("step 2 (`run`, line 3)"),
        "{}",
        failure.message
    );
    assert_eq!(world.tip(), before);
}

#[tokio::test]
async fn an_agent_that_exits_without_a_result_has_failed() {
    let world = world().await;
    let phase = play(&world, "steps: [{say: hm}, {exit: 0}]").await;
    assert_eq!(
        phase.failure(),
        "the agent exited with code 0 before it gave a result"
    );
}

#[tokio::test]
async fn case_17_a_hanging_agent_is_cancelled_in_time() {
    let world = world().await;
    for steps in [
        "steps: [{say: here}, {hang: true}]",
        "steps: [{ignore_cancel: true}, {ignore_eof: true}, {say: here}, {hang: true}]",
    ] {
        let (order, _) = scripted(&world, steps);
        let begun = Instant::now();
        let phase = run(delivery(&world, order), vec![], Cancel::WhenItSpeaks).await;
        assert_eq!(
            phase.report.failure.as_ref().unwrap().kind,
            FailureKind::Cancelled
        );
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}

#[tokio::test]
async fn case_63_an_oversize_line_fails_this_session_only() {
    let world = world().await;
    let steps = "steps: [{oversize_line_bytes: 10485761}]";
    let (bad, good) = tokio::join!(play(&world, steps), play(&world, "steps: [{say: fine}]"));
    let failure = bad.report.failure.as_ref().unwrap();
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert!(
        failure
            .message
            .contains("longer than the limit of 10485760 bytes")
    );
    good.succeeded();
}

#[tokio::test]
async fn r15_caps_on_cost_stop_the_agent() {
    let world = world().await;
    let steps = "steps: [{usage: {tokens: 5, cost_usd: 0.75}}, {sleep_ms: 60000}]";
    let (mut order, _) = scripted(&world, steps);
    order.max_cost_usd_milli = Some(500);
    let phase = run(delivery(&world, order), vec![], Cancel::Never).await;
    let failure = phase.report.failure.as_ref().unwrap();
    assert_eq!(failure.kind, FailureKind::Cap);
    assert!(
        failure.message.contains("0.750 US dollars"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn a_missing_program_is_named_before_any_work() {
    let world = world().await;
    let agent = resolve("opencode", &Overrides::default()).unwrap();
    let mut order = world.order(Work::Agent {
        agent: agent.spec,
        prompt: "x".to_owned(),
    });
    order.models = agent.models;
    let phase = world.run(order).await;
    let words = phase.failure();
    assert!(words.contains("the program \"opencode\""), "{words}");
    assert!(words.contains("searched /usr/local/bin:"), "{words}");
    assert!(
        words.contains("npm install --global opencode-ai"),
        "{words}"
    );
}
