//! From a workflow and a run to the order, and to what a gate is bound to.

use std::collections::BTreeMap;

use bulkhead_model::{
    AgentSpec, Digest, GateId, PhaseOrder, Protocol, Work,
    compose::{
        Completion, ComposeError, GitSurroundings, Surroundings, approved_phase, phase_order,
    },
    gate::{Answer, Binding, BindingPart},
    order::GitExtras,
    run::{PhaseEnd, Repository, Run, Spent},
    workflow::Workflow,
};
use uuid::Uuid;

use crate::{
    run_support::{Driver, commit, ended, pushed, send_back},
    workflow_support::read,
};

const TEXT: &str = "\
name: w
inputs: {task: {required: true}}
secrets: [A, B, C]
defaults: {agent: claude, secrets: [A], timeout: 10m}
caps: {costUsd: 1, turns: 10, time: 5m}
phases:
  - name: a
    prompt: do {{ inputs.task }} on {{ run.branch }}
    secrets: [B]
    network: {allow: [example.com]}
    env: {X: y}
    caps: {turns: 8}
    agent: {name: claude, env: {EXTRA: '1'}}
  - {name: b, run: make}
";

fn inputs() -> BTreeMap<String, String> {
    BTreeMap::from([("task".to_owned(), "it".to_owned())])
}

fn started(workflow: &Workflow) -> Driver {
    let plan = workflow.plan(Repository::Branch).unwrap();
    let id = Uuid::from_u128(9);
    Driver::started(Run::new(bulkhead_model::RunId::from_uuid(id), plan))
}

fn agent() -> AgentSpec {
    AgentSpec {
        name: "claude".to_owned(),
        argv: vec!["claude".to_owned()],
        protocol: Protocol::ClaudeStreamJson,
        env: BTreeMap::from([("BASE".to_owned(), "1".to_owned())]),
        home_files: BTreeMap::new(),
    }
}

fn order(workflow: &Workflow, run: &Run) -> PhaseOrder {
    let inputs = inputs();
    let around = Surroundings {
        inputs: &inputs,
        git: Some(GitSurroundings {
            branch: "refs/heads/bulkhead/x",
            author_name: "n",
            author_email: "e",
            extras: GitExtras::default(),
        }),
        agent: Some(agent()),
        models: Vec::new(),
        toolchains: Vec::new(),
    };
    phase_order(workflow, run, around).unwrap()
}

#[test]
fn r1_r17_an_order_holds_what_the_phase_names_and_no_more() {
    let workflow = read(TEXT);
    let mut driver = started(&workflow);
    let first = order(&workflow, &driver.run);
    let secrets: Vec<_> = first.secrets.iter().map(ToString::to_string).collect();
    assert_eq!(secrets, ["A", "B"]);
    assert_eq!(first.network.allow.len(), 1);
    let Work::Agent { agent, prompt } = &first.work else {
        panic!("an agent");
    };
    assert_eq!(prompt, "do it on refs/heads/bulkhead/x");
    assert_eq!(agent.env.keys().collect::<Vec<_>>(), ["BASE", "EXTRA"]);
    let variables: Vec<_> = first.env.keys().map(String::as_str).collect();
    assert_eq!(
        variables,
        [
            "BULKHEAD_COMMENT",
            "BULKHEAD_INPUT_TASK",
            "BULKHEAD_PHASE_ATTEMPT",
            "BULKHEAD_PHASE_NAME",
            "BULKHEAD_RUN_BRANCH",
            "BULKHEAD_RUN_ID",
            "X"
        ]
    );
    driver.succeed();
    driver.answer(Answer::Approve);
    let second = order(&workflow, &driver.run);
    let secrets: Vec<_> = second.secrets.iter().map(ToString::to_string).collect();
    assert_eq!(secrets, ["A"]);
    assert!(second.network.allow.is_empty() && !second.env.contains_key("X"));
    assert_eq!(
        second.git.unwrap().start,
        driver.run.head.clone().unwrap().to_string()
    );
}

#[test]
fn r15_an_order_leaves_the_phase_only_what_the_run_has_left() {
    let workflow = read(TEXT);
    let mut driver = started(&workflow);
    let first = order(&workflow, &driver.run);
    assert_eq!(
        (first.max_turns, first.max_cost_usd_milli),
        (Some(8), Some(1_000))
    );
    assert_eq!(first.limits.time_ms, 300_000);
    driver.run.spent = Spent {
        cost_micro_usd: 400_000,
        turns: 7,
        time_ms: 60_000,
        ..Spent::default()
    };
    let later = order(&workflow, &driver.run);
    assert_eq!(
        (later.max_turns, later.max_cost_usd_milli),
        (Some(3), Some(600))
    );
    assert_eq!(later.limits.time_ms, 240_000);
}

#[test]
fn r2_a_comment_reaches_the_prompt_and_the_environment() {
    let workflow = read(TEXT);
    let mut driver = started(&workflow);
    driver.succeed();
    driver.answer(send_back("use fewer words"));
    let again = order(&workflow, &driver.run);
    assert_eq!(
        (again.attempt, again.env["BULKHEAD_COMMENT"].as_str()),
        (2, "use fewer words")
    );
    assert!(matches!(again.work, Work::Agent { prompt, .. } if prompt.contains("use fewer words")));
}

#[test]
fn r14_the_completing_commit_is_known_by_its_trailers() {
    let workflow = read(TEXT);
    let driver = started(&workflow);
    let order = order(&workflow, &driver.run);
    let message = order.git.unwrap().commit_message;
    let mark = |attempt| Completion {
        run: driver.run.id,
        phase: order.phase.clone(),
        attempt,
    };
    assert!(mark(1).is_in(&message), "{message}");
    assert!(mark(1).is_in(&message.replace('\n', "\r\n")));
    assert!(!mark(2).is_in(&message));
    assert!(!mark(1).is_in("work in progress"));
    assert!(!mark(1).is_in(&format!("{message}\n\nand more words")));
    assert!(!mark(1).is_in(""));
}

#[test]
fn r2_an_order_needs_something_in_flight_and_its_agent() {
    let workflow = read(TEXT);
    let inputs = inputs();
    let around = Surroundings {
        inputs: &inputs,
        git: None,
        agent: None,
        models: Vec::new(),
        toolchains: Vec::new(),
    };
    let driver = started(&workflow);
    let without = phase_order(&workflow, &driver.run, around.clone());
    assert_eq!(without, Err(ComposeError::NoAgent));
    let mut driver = driver;
    driver.succeed();
    let at_gate = phase_order(&workflow, &driver.run, around);
    assert_eq!(at_gate, Err(ComposeError::NothingInFlight));
}

#[test]
fn case_62_any_change_of_the_next_phase_or_its_policy_changes_the_binding() {
    let bind = |text: &str, operator: &str| {
        let workflow = read(text);
        let mut driver = started(&workflow);
        driver.succeed();
        let next = approved_phase(&workflow, &driver.run);
        assert_eq!(next.map(|phase| phase.name.as_str()), Some("b"));
        Binding::of(Some(commit(1)), Digest::of_bytes(b"d"), next, &operator).unwrap()
    };
    let shown = bind(TEXT, "x");
    assert_eq!(shown, bind(TEXT, "x"));
    let changes = [
        ("run: make", "run: make all", BindingPart::NextPhase),
        ("run: make", "run: make, retries: 1", BindingPart::NextPhase),
        ("run: make", "run: make, timeout: 11m", BindingPart::Policy),
        ("run: make", "run: make, secrets: [C]", BindingPart::Policy),
        ("run: make", "run: make, env: {Y: z}", BindingPart::Policy),
        ("run: make", "run: make, gate: none", BindingPart::Policy),
        (
            "run: make",
            "run: make, toolchains: [rust]",
            BindingPart::Policy,
        ),
        ("run: make", "run: make, needs: [gpu]", BindingPart::Policy),
        (
            "run: make",
            "run: make, resources: {pids: 9}",
            BindingPart::Policy,
        ),
        (
            "run: make",
            "run: make, network: {allow: [a.example]}",
            BindingPart::Policy,
        ),
    ];
    for (from, to, part) in changes {
        let now = bind(&TEXT.replace(from, to), "x");
        assert_eq!(shown.changed(&now), [part], "{to}");
        assert_ne!(shown.digest(), now.digest());
    }
    assert_eq!(shown.changed(&bind(TEXT, "y")), [BindingPart::Policy]);
}

#[test]
fn r2_approve_starts_the_same_phase_where_it_parked_and_none_after_the_last() {
    let workflow = read(TEXT);
    let mut driver = started(&workflow);
    driver.fail();
    let same = approved_phase(&workflow, &driver.run).unwrap();
    assert_eq!(same.name.as_str(), "a");
    driver.answer(Answer::Approve);
    driver.succeed();
    driver.answer(Answer::Approve);
    driver.claim();
    driver.apply(&pushed(&driver.run));
    let head = crate::run_support::fresh(&driver.run);
    driver.apply(&ended(&driver.run, PhaseEnd::Succeeded, Some(head)));
    assert_eq!(approved_phase(&workflow, &driver.run), None);
    assert_ne!(
        driver.run.open_gate().unwrap().1.id,
        GateId::from_uuid(Uuid::nil())
    );
}
