//! What is said about workflows with faults: place, field, what was expected, the nearest right name.

use bulkhead_model::workflow::{FILE_BYTES_MAX, Known, Workflow};
use insta::assert_snapshot;
use proptest::prelude::*;

use crate::workflow_support::{complaint, examples, known, phase_with, read};

#[test]
fn r1_every_independent_problem_is_reported_at_once_with_its_place() {
    let text = "\
name: 5
inputs:
  task: {requird: true}
secrets: [DEPLOY_KEY]
defaults:
  agent: claud
  timeout: 90
  network:
    allow: ['preset:nmp', 'http://x']
phases:
  - name: Plan It
    prompt: Do {{ input.task }}
    secrets: [DEPLOY_KEYS]
  - name: test
    run: make
    gate: reviw
    resources: {cpu: 2, memory: 4GB}
  - name: test
    run: make
    needs: gpu
";
    assert_snapshot!(complaint(text), @r#"
    w.yaml:1:7: name: expected text, found the number 5 (write it in quotes)
    w.yaml:3:10: inputs.task.requird: unknown field `requird`: expected one of description, default, required; did you mean `required`?
    w.yaml:6:10: defaults.agent: unknown agent `claud`: expected one of claude, codex, gemini, opencode, scripted; did you mean `claude`?
    w.yaml:7:12: defaults.timeout: expected a duration such as `90s`, `10m` or `1h30m`, found the number 90
    w.yaml:9:13: defaults.network.allow[0]: there is no preset "nmp"; did you mean `preset:npm`?
    w.yaml:9:27: defaults.network.allow[1]: "http://x" is not an allow-list entry: it has a scheme; write the host and port alone, such as `api.example.com:443`
    w.yaml:11:11: phases[0].name: "Plan It" is not a phase name: expected 1 to 64 of a-z, 0-9, `-` and `_`, beginning with a letter or digit
    w.yaml:12:16: phases[0].prompt: unknown placeholder `{{ input.task }}`: expected one of run.id, run.branch, phase.name, phase.attempt, comment, inputs.task; did you mean `inputs.task`?
    w.yaml:13:15: phases[0].secrets[0]: unknown secret `DEPLOY_KEYS`: expected one of DEPLOY_KEY; did you mean `DEPLOY_KEY`?
    w.yaml:16:11: phases[1].gate: unknown gate `reviw`: expected one of review, none; did you mean `review`?
    w.yaml:17:17: phases[1].resources.cpu: unknown field `cpu`: expected one of cpus, memory, pids, disk, log; did you mean `cpus`?
    w.yaml:17:33: phases[1].resources.memory: expected a size such as `512MiB` or `4GiB`, found the text "4GB"
    w.yaml:18:11: phases[2].name: two phases are called `test`
    w.yaml:20:12: phases[2].needs: expected a list, found the text "gpu"
    "#);
}

#[test]
fn r1_unknown_fields_are_errors_everywhere_and_the_nearest_is_named() {
    let text = "\
name: w
phase: []
defaults: {timout: 1m, resources: {ram: 1GiB}, network: {alow: []}, caps: {cost: 1}}
caps: {turn: 1}
phases:
  - {name: a, run: x, wait_for_labels: true, artifacts: {output: {}}}
  - {name: b, prompt: x, agent: {name: claude, modl: y}, gate: {expire: 1h, notify: [{web_hook: x}]}}
";
    assert_snapshot!(complaint(text), @"
    w.yaml:2:1: phase: unknown field `phase`: expected one of name, description, inputs, secrets, defaults, caps, phases; did you mean `phases`?
    w.yaml:3:12: defaults.timout: unknown field `timout`: expected one of agent, timeout, idle, resources, network, secrets, env, toolchains, gate, caps, retries, cacheWorkspace; did you mean `timeout`?
    w.yaml:3:36: defaults.resources.ram: unknown field `ram`: expected one of cpus, memory, pids, disk, log
    w.yaml:3:57: defaults.network: the field `allow` is missing
    w.yaml:3:58: defaults.network.alow: unknown field `alow`: expected one of allow; did you mean `allow`?
    w.yaml:3:76: defaults.caps.cost: unknown field `cost`: expected one of costUsd, turns; did you mean `costUsd`?
    w.yaml:4:8: caps.turn: unknown field `turn`: expected one of costUsd, turns, time; did you mean `turns`?
    w.yaml:6:23: phases[0].wait_for_labels: unknown field `wait_for_labels`: expected one of name, prompt, run, needs, waitForLabels, artifacts, agent, timeout, idle, resources, network, secrets, env, toolchains, gate, caps, retries; did you mean `waitForLabels`?
    w.yaml:6:58: phases[0].artifacts.output: unknown field `output`: expected one of out, in; did you mean `out`?
    w.yaml:7:48: phases[1].agent.modl: unknown field `modl`: expected one of name, model, command, protocol, env; did you mean `model`?
    w.yaml:7:65: phases[1].gate.expire: unknown field `expire`: expected one of onSuccess, approvers, expires, onExpiry, notify; did you mean `expires`?
    w.yaml:7:86: phases[1].gate.notify[0]: expected either `webhook` or `command`
    w.yaml:7:87: phases[1].gate.notify[0].web_hook: unknown field `web_hook`: expected one of webhook, command; did you mean `webhook`?
    ");
}

#[test]
fn r1_repeated_fields_are_errors() {
    let text = "\
name: w
name: v
phases:
  - {name: a, run: x, run: y}
";
    assert_snapshot!(complaint(text), @"
    w.yaml:2:1: name: the field is written twice, first on line 1
    w.yaml:4:23: phases[0].run: the field is written twice, first on line 4
    ");
}

#[test]
fn r1_types_are_strict() {
    let text = "\
name: yes
defaults: {cacheWorkspace: yes, env: {PORT: 8080, DEBUG: true, EMPTY: ''}}
phases:
  - name: a
    run: 5
    retries: '2'
    resources: {cpus: '2', pids: 1.5, memory: 1024, disk: 1GB}
    timeout: 1h30
    idle: 1m1h
    caps: {costUsd: -1, turns: 0}
    needs: ~
";
    assert_snapshot!(complaint(text), @r#"
    w.yaml:2:28: defaults.cacheWorkspace: expected `true` or `false`, found the text "yes"
    w.yaml:2:45: defaults.env.PORT: expected text, found the number 8080 (write it in quotes)
    w.yaml:2:58: defaults.env.DEBUG: expected text, found the truth value true (write it in quotes)
    w.yaml:5:10: phases[0].run: expected text, found the number 5 (write it in quotes)
    w.yaml:6:14: phases[0].retries: expected a whole number from 0 to 10, found the text "2"
    w.yaml:7:23: phases[0].resources.cpus: expected a number of CPUs: a number above 0, at most 1024, in steps of 1/1000, found the text "2"
    w.yaml:7:34: phases[0].resources.pids: expected a whole number from 8 to 1000000, found the number 1.5
    w.yaml:7:47: phases[0].resources.memory: expected a size such as `512MiB` or `4GiB`, found the number 1024
    w.yaml:7:59: phases[0].resources.disk: expected a size such as `512MiB` or `4GiB`, found the text "1GB"
    w.yaml:8:14: phases[0].timeout: expected a duration such as `90s`, `10m` or `1h30m`, found the text "1h30"
    w.yaml:9:11: phases[0].idle: expected a duration such as `90s`, `10m` or `1h30m`, found the text "1m1h"
    w.yaml:10:11: phases[0].caps: it has no use in a phase that runs a command
    w.yaml:10:21: phases[0].caps.costUsd: expected an amount in US dollars: a number above 0, at most 1000000, in steps of 1/1000000, found the number -1
    w.yaml:10:32: phases[0].caps.turns: expected a whole number from 1 to 1000000, found the number 0
    w.yaml:11:12: phases[0].needs: expected a list, found nothing
    "#);
}

#[test]
fn r3_no_field_switches_isolation_off() {
    for line in [
        "sandbox: false",
        "sandbox: none",
        "isolation: off",
        "privileged: true",
        "host: local",
        "engine: none",
        "user: root",
        "mounts: [/]",
    ] {
        for text in [
            phase_with(line),
            format!("name: w\n{line}\nphases: [{{name: a, run: x}}]\n"),
            format!("name: w\ndefaults: {{{line}}}\nphases: [{{name: a, run: x}}]\n"),
            phase_with(&format!("resources: {{{line}}}")),
            phase_with(&format!("network: {{allow: [], {line}}}")),
        ] {
            let complaint = complaint(&text);
            assert!(complaint.contains("unknown field"), "{text}\n{complaint}");
        }
    }
}

#[test]
fn case_50_a_network_that_cannot_be_read_refuses_and_an_empty_one_reaches_nothing() {
    for (line, nothing) in [
        ("network: {allow: []}", true),
        ("timeout: 1m", true),
        ("network: {}", false),
        ("network:", false),
        ("network: []", false),
        ("network: {allow:}", false),
        ("network: {allow: all}", false),
        ("network: {allow: ['*']}", false),
        ("network: {allow: ['']}", false),
        ("network: {allow: [~]}", false),
        ("network: {alow: []}", false),
        ("network: {allow: [], deny: []}", false),
        ("network: {allow: ['preset:everything']}", false),
    ] {
        let text = phase_with(line);
        match Workflow::read("w", &text, &Known::default()) {
            Ok(workflow) => {
                assert!(nothing, "{line} was read");
                assert!(
                    workflow.phases[0].network.allow.is_empty(),
                    "{line} reaches something"
                );
            }
            Err(error) => assert!(!nothing, "{line} was refused: {error}"),
        }
    }
}

#[test]
fn case_50_a_phases_own_list_replaces_the_defaults_even_when_empty() {
    let text = "\
name: w
defaults: {network: {allow: [example.com]}}
phases:
  - {name: a, run: x}
  - {name: b, run: x, network: {allow: []}}
";
    let workflow = read(text);
    assert_eq!(workflow.phases[0].network.allow.len(), 1);
    assert!(workflow.phases[1].network.allow.is_empty());
}

#[test]
fn r1_placeholders_are_checked_with_their_place() {
    let text = "\
name: w
inputs: {task: {}}
defaults: {agent: claude}
phases:
  - name: a
    prompt: |
      First {{ inputs.task }} and \\{{ literal }},
      then {{ inputs.tsak }} and {{ run.brunch }}
  - name: b
    prompt: \"say {{ nothing }}\"
  - name: c
    prompt: open {{ inputs.task
  - name: d
    run: echo {{ inputs.task }}
  - name: e
    run: docker inspect -f '{{.State}}' x
";
    assert_snapshot!(complaint(text), @r#"
    w.yaml:8:12: phases[0].prompt: unknown placeholder `{{ inputs.tsak }}`: expected one of run.id, run.branch, phase.name, phase.attempt, comment, inputs.task; did you mean `inputs.task`?
    w.yaml:8:34: phases[0].prompt: unknown placeholder `{{ run.brunch }}`: expected one of run.id, run.branch, phase.name, phase.attempt, comment, inputs.task; did you mean `run.branch`?
    w.yaml:10:18: phases[1].prompt: unknown placeholder `{{ nothing }}`: expected one of run.id, run.branch, phase.name, phase.attempt, comment, inputs.task
    w.yaml:12:18: phases[2].prompt: `{{` without `}}`; write `\{{` for two braces
    w.yaml:14:15: phases[3].run: `{{ inputs.task }}` is not replaced in a command, where it would be run as code: use the variable "$BULKHEAD_INPUT_TASK"
    "#);
}

#[test]
fn r1_what_cannot_be_meant_together_is_an_error() {
    let text = "\
name: w
inputs: {a: {required: true, default: x}, A: {}, 1x: {}}
secrets: [TOKEN, TOKEN]
phases:
  - {name: a}
  - {name: b, run: x, prompt: y}
  - {name: c, prompt: y}
  - {name: d, run: x, agent: claude}
  - {name: e, run: x, waitForLabels: true}
  - {name: f, run: x, gate: {onExpiry: reject}}
  - {name: g, run: x, gate: {approvers: []}}
  - {name: h, run: x, env: {TOKEN: x, BULKHEAD_RUN: x, GIT_CONFIG_COUNT: '1', 'a b': x}}
  - {name: i, run: x, artifacts: {in: [later], out: {log: ../x, git: .git/config, abs: /etc/passwd}}}
  - {name: j, run: x, artifacts: {out: {later: x}}}
  - {name: k, run: x, gate: {notify: [{command: rm}, {webhook: 'file:///etc'}, {webhook: 'https://u:p@x'}, {}]}}
  - {name: l, run: x, toolchains: [rusty]}
  - {name: m, prompt: y, agent: {name: mine, protocol: acp}}
";
    assert_snapshot!(complaint(text), @r#"
    w.yaml:2:39: inputs.a.default: a required input has no use for a default
    w.yaml:2:46: inputs.A: it differs from `a` only in upper and lower case
    w.yaml:2:54: inputs.1x: not an input's name: expected 1 to 64 of letters, digits and `_`, beginning with a letter
    w.yaml:3:18: secrets[1]: it is listed twice
    w.yaml:5:5: phases[0]: expected either `prompt` (for an agent) or `run` (a command)
    w.yaml:6:5: phases[1]: expected either `prompt` (for an agent) or `run` (a command)
    w.yaml:7:5: phases[2]: a phase with a prompt needs an `agent`: name one here or under `defaults`
    w.yaml:8:30: phases[3].agent: it has no use in a phase that runs a command
    w.yaml:9:38: phases[4].waitForLabels: it needs `needs` beside it
    w.yaml:10:40: phases[5].gate.onExpiry: it needs `expires` beside it
    w.yaml:11:41: phases[6].gate.approvers: expected at least one name; leave the field out where anyone with the scope `decide` may answer
    w.yaml:12:36: phases[7].env.TOKEN: a declared secret has this name: name it under `secrets`, or call the variable otherwise
    w.yaml:12:53: phases[7].env.BULKHEAD_RUN: variables of this name are set by Bulkhead
    w.yaml:12:74: phases[7].env.GIT_CONFIG_COUNT: variables of this name are set by Bulkhead
    w.yaml:12:86: phases[7].env.a b: "a b" is not a variable's name
    w.yaml:13:40: phases[8].artifacts.in[0]: unknown artifact of an earlier phase `later`: there is none to name here
    w.yaml:13:59: phases[8].artifacts.out.log: expected a path inside the workspace, without `..`, found the text "../x"
    w.yaml:13:70: phases[8].artifacts.out.git: expected a path inside the workspace, without `..`, found the text ".git/config"
    w.yaml:13:88: phases[8].artifacts.out.abs: expected a path inside the workspace, without `..`, found the text "/etc/passwd"
    w.yaml:15:49: phases[10].gate.notify[0].command: unknown notifier `rm`: expected one of page-the-owner
    w.yaml:15:64: phases[10].gate.notify[1].webhook: expected an http or https URL without a user name in it, found the text "file:///etc"
    w.yaml:15:90: phases[10].gate.notify[2].webhook: expected an http or https URL without a user name in it, found the text "https://u:p@x"
    w.yaml:15:108: phases[10].gate.notify[3]: expected either `webhook` or `command`
    w.yaml:16:36: phases[11].toolchains[0]: unknown toolchain `rusty`: expected one of rust, node; did you mean `rust`?
    w.yaml:17:40: phases[12].agent.name: unknown agent `mine`: expected one of claude, codex, gemini, opencode, scripted
    w.yaml:17:56: phases[12].agent.protocol: it needs `command` beside it
    "#);
}

#[test]
fn r1_a_workflow_needs_a_name_and_phases() {
    assert_snapshot!(complaint("description: x"), @"
    w.yaml:1:1: the field `name` is missing
    w.yaml:1:1: the field `phases` is missing
    ");
    assert_snapshot!(complaint("name: w\nphases: []"), @"w.yaml:2:9: phases: a workflow needs at least one phase");
    assert_snapshot!(complaint(""), @"w.yaml:1:1: expected a mapping with name, description, inputs, secrets, defaults, caps, phases, found nothing");
    assert_snapshot!(complaint("- a list"), @"w.yaml:1:1: expected a mapping with name, description, inputs, secrets, defaults, caps, phases, found a list");
}

#[test]
fn r1_broken_yaml_says_where() {
    assert_snapshot!(complaint("name: w\nphases: [\n"), @"w.yaml:2:9: this is not the YAML of a workflow: unclosed bracket '['");
    assert_snapshot!(complaint("name: 'w\n"), @"w.yaml:1:7: this is not the YAML of a workflow: unclosed quote");
    assert_snapshot!(complaint("name: w\n\tphases: x\n"), @"w.yaml:1:7: this is not the YAML of a workflow: while scanning a plain scalar, found a tab");
    assert_snapshot!(complaint("name: *nowhere\n"), @"w.yaml:1:7: this is not the YAML of a workflow: alias references unknown anchor");
    assert_snapshot!(complaint("name: w\n---\nname: v\n"), @"w.yaml:2:1: this is not the YAML of a workflow: it holds more than one document");
    assert_snapshot!(complaint("base: &b {name: w}\n<<: *b\n"), @"w.yaml:2:1: this is not the YAML of a workflow: YAML merge keys are not allowed by configured policy");
    assert_snapshot!(complaint("? [a]\n: b\n"), @"w.yaml:1:1: this is not the YAML of a workflow: a key must be a text, not a list");
}

#[test]
fn r1_bytes_that_are_no_text_say_so() {
    let error = Workflow::read_bytes("w.yaml", b"name: w\n# \xff\n", &known()).unwrap_err();
    assert_snapshot!(error, @"w.yaml:2:1: the file is not UTF-8 text");
}

#[test]
fn r1_sizes_depths_and_aliases_are_bounded() {
    let long = format!("name: w\n# {}\n", "x".repeat(FILE_BYTES_MAX));
    assert!(complaint(&long).contains("at most"));
    let deep = format!("name: {}{}", "[".repeat(1_000), "]".repeat(1_000));
    complaint(&deep);
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (name, of) in [
        ("b", "a"),
        ("c", "b"),
        ("d", "c"),
        ("e", "d"),
        ("f", "e"),
        ("g", "f"),
    ] {
        let ten = vec![format!("*{of}"); 10].join(",");
        bomb.push_str(&format!("{name}: &{name} [{ten}]\n"));
    }
    complaint(&bomb);
    complaint("a: &a [*a]\n");
    let many = "  - {name: p, run: x}\n".repeat(5_000);
    complaint(&format!("name: w\nphases:\n{many}"));
}

#[test]
fn r1_many_problems_are_counted_but_not_all_listed() {
    let fields: String = (0..100).map(|index| format!("field{index}: x\n")).collect();
    let error = Workflow::read("w.yaml", &fields, &known()).unwrap_err();
    assert_eq!(error.problems.len(), 50);
    assert!(error.more > 50);
}

#[test]
fn r1_a_reused_part_is_allowed_as_an_alias() {
    let text = "\
name: w
phases:
  - {name: a, run: x, network: &net {allow: [example.com]}}
  - {name: b, run: x, network: *net}
";
    let workflow = read(text);
    assert_eq!(workflow.phases[0].network, workflow.phases[1].network);
}

/// The samples with small accidents: a character dropped, doubled or replaced.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let sample = prop::sample::select(examples());
    let accident = (any::<prop::sample::Index>(), any::<Option<u8>>());
    (sample, prop::collection::vec(accident, 1..6)).prop_map(|((_, text), accidents)| {
        let mut bytes = text.into_bytes();
        for (place, what) in accidents {
            let place = place.index(bytes.len());
            match what {
                Some(byte) => bytes[place] = byte,
                None => {
                    bytes.remove(place);
                }
            }
        }
        bytes
    })
}

fn says_where(bytes: &[u8]) {
    if let Err(error) = Workflow::read_bytes("w.yaml", bytes, &known()) {
        assert!(!error.problems.is_empty());
        for problem in error.problems {
            assert!(problem.place.line >= 1 && problem.place.column >= 1);
            assert!(!problem.message.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r1_no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        says_where(&bytes);
    }

    #[test]
    fn r1_no_yaml_like_text_makes_the_reader_panic(text in "[-a-z0-9:{}\\[\\],&*!|>'\"#?%@` \n\t~<.]{0,200}") {
        says_where(text.as_bytes());
    }

    #[test]
    fn r1_no_damaged_workflow_makes_the_reader_panic(bytes in damaged()) {
        says_where(&bytes);
    }
}

#[test]
fn r1_tags_and_other_ways_to_change_a_type_are_refused() {
    for text in [
        "name: !secret w\nphases: [{name: a, run: x}]\n",
        "name: w\nphases: [{name: a, run: x, retries: !!str 2}]\n",
        "name: w\nphases: [{name: a, run: x, resources: {cpus: .inf}}]\n",
        "name: w\nphases: [{name: a, run: x, resources: {cpus: .nan}}]\n",
        "name: w\nphases: [{name: a, run: x, resources: {cpus: 1e300}}]\n",
        "name: w\nphases: [{name: a, run: x, retries: 0x100000000}]\n",
        "name: w\nphases: [{name: a, run: x, retries: 99999999999999999999}]\n",
        "name: w\n5: x\nphases: [{name: a, run: x}]\n",
        "name: w\n~: x\nphases: [{name: a, run: x}]\n",
        "name: \"w\\0\"\nphases: [{name: a, run: x}]\n",
    ] {
        complaint(text);
    }
}

#[test]
fn r1_line_endings_and_a_byte_order_mark_do_not_move_places() {
    let text = "name: w\nphases:\n  - {name: a, run: x, tiemout: 1m}\n";
    let plain = complaint(text);
    assert!(
        plain.starts_with("w.yaml:3:23: phases[0].tiemout:"),
        "{plain}"
    );
    assert_eq!(complaint(&text.replace('\n', "\r\n")), plain);
    assert_eq!(complaint(&format!("\u{feff}{text}")), plain);
    let wide = complaint("name: w\nphases:\n  - {name: a, run: größe, tiemout: 1m}\n");
    assert!(wide.starts_with("w.yaml:3:27:"), "{wide}");
}
