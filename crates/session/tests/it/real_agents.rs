//! The real command lines of the well-known agents, each doing a phase that edits a file, in the sandbox, against
//! the fake model, with no key and no network (D13).
//!
//! They are large (100 to 420 MB), so only the one that also runs without Node is part of every test run;
//! `make test-agents` runs all.

use bulkhead_fake_model::Script;
use bulkhead_model::{AgentEvent, Work};
use bulkhead_session::agents::{Overrides, resolve};

use crate::{
    toolchain::installed,
    world::{TOKEN, World},
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

#[tokio::test]
async fn d13_claude_edits_a_file() {
    edits_a_file("claude", &Overrides::default()).await;
}

#[tokio::test]
#[ignore = "large: `make test-agents`"]
async fn d13_codex_edits_a_file() {
    // An unknown model gets plain tools; the newest ones are offered a tool that runs JavaScript.
    let overrides = Overrides {
        model: Some("fake".to_owned()),
        ..Overrides::default()
    };
    edits_a_file("codex", &overrides).await;
}

#[tokio::test]
#[ignore = "large: `make test-agents`"]
async fn d13_gemini_edits_a_file() {
    edits_a_file("gemini", &Overrides::default()).await;
}

#[tokio::test]
#[ignore = "large: `make test-agents`"]
async fn d13_opencode_edits_a_file() {
    edits_a_file("opencode", &Overrides::default()).await;
}
