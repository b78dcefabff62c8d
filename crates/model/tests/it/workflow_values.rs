//! What a good workflow says.

use std::collections::BTreeMap;

use bulkhead_model::{
    Limits,
    gate::{Notifier, OnSuccess},
    run::Repository,
    workflow::{
        InputError, Known, Values, WithoutRunner, WorkSpec, Workflow, Workspace, duration_ms,
        size_bytes, write_duration, write_size,
    },
};
use proptest::prelude::*;

use crate::workflow_support::{examples, known, phase_with, read};

#[test]
fn r1_every_sample_workflow_is_read() {
    let examples = examples();
    assert!(examples.len() >= 4);
    for (name, text) in examples {
        if let Err(error) = Workflow::read(&name, &text, &known()) {
            panic!("{error}");
        }
    }
}

#[test]
fn r1_a_workflow_survives_its_stored_form() {
    for (name, text) in examples() {
        let workflow = Workflow::read(&name, &text, &Known::default()).unwrap();
        let stored = serde_json::to_string(&workflow).unwrap();
        assert_eq!(serde_json::from_str::<Workflow>(&stored).unwrap(), workflow);
    }
}

#[test]
fn r1_what_is_not_said_has_the_documented_default() {
    let workflow = read("name: w\nphases: [{name: a, run: x}]\n");
    let phase = &workflow.phases[0];
    assert_eq!(phase.limits, Limits::default());
    assert_eq!(phase.gate.on_success, OnSuccess::Review);
    assert_eq!(phase.gate.expires_after_ms, None);
    assert_eq!(
        (phase.retries, phase.secrets.len(), phase.env.len()),
        (0, 0, 0)
    );
    assert_eq!(phase.without_runner, WithoutRunner::RunHere);
    assert_eq!(workflow.workspace, Workspace::Fresh);
    assert!(phase.network.allow.is_empty());
}

#[test]
fn r1_phases_and_defaults_are_joined_as_documented() {
    let text = "\
name: w
secrets: [A, B, C]
defaults:
  timeout: 5m
  resources: {memory: 1GiB, pids: 64}
  secrets: [A]
  env: {X: one, Y: two}
  gate: none
  retries: 2
  caps: {costUsd: 1.5, turns: 7}
  agent: claude
phases:
  - {name: a, run: x}
  - name: b
    prompt: do it
    agent: {name: codex, model: m}
    timeout: 6m
    resources: {memory: 2GiB, cpus: 0.5}
    secrets: [B, A]
    env: {Y: three}
    gate: review
    retries: 0
    caps: {turns: 9}
";
    let workflow = read(text);
    let [a, b] = &workflow.phases[..] else {
        panic!("two phases");
    };
    assert_eq!((a.limits.time_ms, b.limits.time_ms), (300_000, 360_000));
    assert_eq!(
        (b.limits.memory_bytes, b.limits.pids, b.limits.cpu_milli),
        (2 << 30, 64, 500)
    );
    let names = |secrets: &[bulkhead_model::SecretName]| {
        secrets.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // R17: what the defaults name and what the phase names, and nothing else that is declared.
    assert_eq!(
        (names(&a.secrets), names(&b.secrets)),
        (vec!["A".into()], vec!["A".into(), "B".into()])
    );
    assert_eq!((b.env["X"].as_str(), b.env["Y"].as_str()), ("one", "three"));
    assert_eq!(
        (a.gate.on_success, b.gate.on_success),
        (OnSuccess::GoOn, OnSuccess::Review)
    );
    assert_eq!((a.retries, b.retries), (2, 0));
    assert_eq!(
        (b.caps.cost_micro_usd, b.caps.turns),
        (Some(1_500_000), Some(9))
    );
    let WorkSpec::Agent { agent, .. } = &b.work else {
        panic!("an agent");
    };
    assert_eq!(
        (agent.name.as_str(), agent.model.as_deref()),
        ("codex", Some("m"))
    );
}

#[test]
fn r15_a_gate_says_who_may_answer_until_when_and_who_is_told() {
    let gate = "gate: {onSuccess: none, approvers: [ada], expires: 24h, onExpiry: reject, notify: [{webhook: 'https://x.example/h'}, {command: page-the-owner}]}";
    let workflow = read(&phase_with(gate));
    let gate = &workflow.phases[0].gate;
    assert_eq!(gate.on_success, OnSuccess::GoOn);
    assert_eq!(gate.approvers, ["ada"]);
    assert_eq!(gate.expires_after_ms, Some(24 * 3_600_000));
    assert_eq!(
        gate.notify,
        [
            Notifier::Webhook("https://x.example/h".to_owned()),
            Notifier::Command("page-the-owner".to_owned())
        ]
    );
}

#[test]
fn r1_inputs_are_resolved_with_every_problem_named() {
    let text = "\
name: w
inputs: {task: {required: true, description: what to do}, style: {default: terse}, note: {}}
phases: [{name: a, run: x}]
";
    let workflow = read(text);
    let given = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        pairs.iter().map(owned).collect()
    };
    let values = workflow.resolve_inputs(&given(&[("task", "x")])).unwrap();
    assert_eq!(
        values,
        given(&[("task", "x"), ("style", "terse"), ("note", "")])
    );
    let errors = workflow
        .resolve_inputs(&given(&[("taks", "x")]))
        .unwrap_err();
    let words: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "the workflow has no input `taks`; did you mean `task`?",
            "the workflow needs the input `task` (what to do)"
        ]
    );
    let long = "x".repeat((64 << 10) + 1);
    let errors = workflow
        .resolve_inputs(&given(&[("task", &long)]))
        .unwrap_err();
    assert!(matches!(errors[..], [InputError::TooLong { .. }]));
    let errors = workflow
        .resolve_inputs(&given(&[("task", "a\0b")]))
        .unwrap_err();
    assert!(matches!(errors[..], [InputError::Nul { .. }]));
}

#[test]
fn r1_all_inputs_together_are_bounded() {
    let names: Vec<String> = (0..9).map(|index| format!("i{index}")).collect();
    let declared: Vec<_> = names.iter().map(|name| format!("{name}: {{}}")).collect();
    let text = format!(
        "name: w\ninputs: {{{}}}\nphases: [{{name: a, run: x}}]\n",
        declared.join(", ")
    );
    let workflow = read(&text);
    let value = "x".repeat(64 << 10);
    let mut given: BTreeMap<_, _> = names
        .into_iter()
        .map(|name| (name, value.clone()))
        .collect();
    let errors = workflow.resolve_inputs(&given).unwrap_err();
    assert!(matches!(errors[..], [InputError::TooMuch { .. }]));
    given.pop_last();
    assert!(workflow.resolve_inputs(&given).is_ok());
}

fn rendered(prompt: &str, comment: Option<&str>) -> String {
    let text = format!(
        "name: w\ninputs: {{task: {{}}}}\nphases: [{{name: a, agent: claude, prompt: {prompt:?}}}]\n"
    );
    let workflow = read(&text);
    let WorkSpec::Agent { prompt, .. } = &workflow.phases[0].work else {
        panic!("an agent");
    };
    let inputs = BTreeMap::from([("task".to_owned(), "do {{ comment }}".to_owned())]);
    prompt.render(&Values {
        inputs: &inputs,
        run_id: "r1".to_owned(),
        branch: "b",
        phase: "a",
        attempt: 3,
        comment,
    })
}

#[test]
fn r2_prompts_hold_what_they_name_and_never_lose_a_comment() {
    let all = "{{run.id}} {{ run.branch }} {{phase.name}} {{ phase.attempt }} \\{{ x }}";
    assert_eq!(rendered(all, None), "r1 b a 3 {{ x }}");
    assert_eq!(rendered("say: {{ comment }}", Some("no")), "say: no");
    assert_eq!(rendered("say: {{ comment }}", None), "say: ");
    let told = rendered("do it", Some("name it better"));
    assert!(
        told.starts_with("do it\n") && told.contains("name it better"),
        "{told}"
    );
}

#[test]
fn r1_an_input_cannot_bring_a_placeholder_of_its_own() {
    let text = rendered("{{ inputs.task }}", Some("secret words"));
    assert!(text.starts_with("do {{ comment }}"), "{text}");
}

#[test]
fn r1_the_plan_has_the_phases_in_order() {
    let (_, text) = examples()
        .into_iter()
        .find(|(name, _)| name.starts_with("plan-"))
        .unwrap();
    let plan = read(&text).plan(Repository::Branch).unwrap();
    let names: Vec<_> = plan
        .phases()
        .iter()
        .map(|phase| phase.name.as_str())
        .collect();
    assert_eq!(names, ["plan", "implement", "test"]);
    assert_eq!(plan.caps.cost_micro_usd, Some(5_000_000));
}

#[test]
fn r1_durations_and_sizes_have_one_form() {
    let good = [
        ("90s", 90_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("2d", 172_800_000),
    ];
    for (text, ms) in good {
        assert_eq!(duration_ms(text), Some(ms), "{text}");
    }
    for text in [
        "",
        "5",
        "1.5h",
        "-1s",
        "1 h",
        "1H",
        "30m1h",
        "1s1s",
        "h",
        "99999999d",
        "1m ",
        "9999999999999999s",
    ] {
        assert_eq!(duration_ms(text), None, "{text}");
    }
    assert_eq!(size_bytes("512MiB"), Some(512 << 20));
    for text in [
        "",
        "512",
        "1GB",
        "1 GiB",
        "1.5GiB",
        "-1B",
        "1gib",
        "99999999999999TiB",
    ] {
        assert_eq!(size_bytes(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn r1_durations_and_sizes_are_read_as_they_are_written(ms in 0..31_000_000_000_u64, bytes in 0..u64::MAX >> 20) {
        prop_assert_eq!(duration_ms(&write_duration(ms)), Some(ms));
        if bytes < 1_000_000_000_000_000 {
            prop_assert_eq!(size_bytes(&write_size(bytes)), Some(bytes));
        }
    }

    #[test]
    fn r1_no_text_makes_the_units_panic(text in "\\PC{0,30}") {
        let _ = (duration_ms(&text), size_bytes(&text));
    }
}
