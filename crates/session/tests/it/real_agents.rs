//! The real command lines of the well-known agents, each doing a phase that edits a file, in the sandbox, against
//! the fake model, with no key and no network (D13).
//!
//! They are large (100 to 420 MB), so only the one that also runs without Node is part of every test run;
//! `make test-agents` turns on the feature `real-agents` and runs all.

use std::time::Duration;

use bulkhead_fake_model::Script;
use bulkhead_model::{AgentEvent, Work};
use bulkhead_session::agents::{Overrides, resolve};

use crate::{
    toolchain::installed,
    world::{Phase, TOKEN, World},
};

async fn edits_a_file(name: &str, overrides: &Overrides) {
    let toolchain = installed(name);
    let script = Script::Edit {
        path: "/workspace/greeting.txt".to_owned(),
        text: "hello from the model\n".to_owned(),
    };
    let world = World::new(script).await;
    let agent = resolve(name, overrides).unwrap();
    let mut order = world.order(Work::Agent {
        agent: agent.spec,
        prompt: "Write a greeting into greeting.txt".to_owned(),
    });
    order.models = agent.models;
    order.toolchains = vec![toolchain.display().to_string()];
    order.limits.disk_bytes = 1 << 30;
    let phase = world.run(order).await;
    phase.succeeded();
    assert!(phase.report.head.is_some(), "{:#?}", phase.agent());
    assert_eq!(world.file("greeting.txt"), "hello from the model");
    assert_eq!(phase.report.head, Some(world.tip()));
    let events = phase.agent();
    let any = |wanted: fn(&AgentEvent) -> bool| events.iter().any(wanted);
    assert!(
        any(|event| matches!(event, AgentEvent::Started { .. })),
        "{events:#?}"
    );
    assert!(
        any(|event| matches!(event, AgentEvent::ToolStarted { .. })),
        "{events:#?}"
    );
    assert!(
        any(|event| matches!(event, AgentEvent::ToolEnded { ok: true, .. })),
        "{events:#?}"
    );
    assert!(
        any(|event| matches!(event, AgentEvent::Finished { ok: true, .. })),
        "{events:#?}"
    );
    let usage = phase
        .report
        .usage
        .expect("every one of them reports its tokens");
    assert!(
        usage.input_tokens > 0 && usage.output_tokens > 0,
        "{usage:?}"
    );
    // What the agent held as its key was the placeholder, in the field where the key would stand.
    let seen = world.seen.lock().unwrap();
    assert!(
        seen.iter()
            .any(|seen| format!("{:?}", seen.headers).contains(TOKEN))
    );
}

/// Against a model that does this; the phase, and whether the branch has moved.
async fn claude_meets(script: Script) -> (Phase, bool) {
    let world = World::new(script).await;
    let agent = resolve("claude", &Overrides::default()).unwrap();
    let mut order = world.order(Work::Agent {
        agent: agent.spec,
        prompt: "Say hello".to_owned(),
    });
    order.models = agent.models;
    order.toolchains = vec![installed("claude").display().to_string()];
    let before = world.tip();
    let phase = world.run(order).await;
    (phase, world.tip() != before)
}

#[tokio::test]
async fn d13_a_model_that_refuses_fails_the_phase_in_the_agents_words() {
    let (phase, moved) = claude_meets(Script::Fail { status: 400 }).await;
    assert!(
        phase.failure().starts_with("the agent says that it failed"),
        "{}",
        phase.failure()
    );
    assert!(!moved);
}

#[tokio::test]
async fn d13_a_slow_model_is_waited_for() {
    let (text, pause) = ("slowly".to_owned(), Duration::from_millis(300));
    let (phase, moved) = claude_meets(Script::Slow { text, pause }).await;
    assert_eq!(phase.succeeded().report.result.as_deref(), Some("slowly"));
    assert!(!moved && phase.report.head.is_none());
}

/// D13, case 58: with its own prompts off (R7), which it refuses to be as root: inside it is an ordinary user.
#[tokio::test]
async fn d13_claude_edits_a_file() {
    edits_a_file("claude", &Overrides::default()).await;
}

#[cfg(feature = "real-agents")]
#[tokio::test]
async fn d13_codex_edits_a_file() {
    // An unknown model gets plain tools; the newest ones are offered a tool that runs JavaScript.
    let overrides = Overrides {
        model: Some("fake".to_owned()),
        ..Overrides::default()
    };
    edits_a_file("codex", &overrides).await;
}

#[cfg(feature = "real-agents")]
#[tokio::test]
async fn d13_gemini_edits_a_file() {
    edits_a_file("gemini", &Overrides::default()).await;
}

#[cfg(feature = "real-agents")]
#[tokio::test]
async fn d13_opencode_edits_a_file() {
    edits_a_file("opencode", &Overrides::default()).await;
}
