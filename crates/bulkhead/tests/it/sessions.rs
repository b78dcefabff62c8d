//! Sessions on this machine and in the sandbox, from outside.

use std::{
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    program::{Ended, World, git},
    terminal::AtTerminal,
};

const SCRIPTED: &str = "agent:\n  name: scripted\n  command: [/run/bulkhead/bin/bulkhead, agent, scripted, STEPS]\n  protocol: acp\n";

pub(crate) fn session(world: &World, yaml: &str) -> PathBuf {
    let path = world.path().join("SESSION.yaml");
    std::fs::write(&path, yaml).unwrap();
    path
}

pub(crate) fn run(world: &World, yaml: &str) -> Ended {
    let file = session(world, yaml);
    world.run(&["session", "run", file.to_str().unwrap()])
}

/// A session with the scripted agent, whose steps are at `steps` on its host.
fn scripted(steps: &str, rest: &str) -> String {
    format!("{}{rest}", SCRIPTED.replace("STEPS", steps))
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The only session of the world: its directory, and what is known of it.
pub(crate) fn only(world: &World) -> (PathBuf, Value) {
    let dirs = std::fs::read_dir(world.data_dir().join("sessions")).unwrap();
    let dirs: Vec<_> = dirs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    let record = std::fs::read(dirs[0].join("session.json")).unwrap();
    (dirs[0].clone(), serde_json::from_slice(&record).unwrap())
}

#[test]
fn h10_h16_a_command_runs_on_this_machine_and_its_reach_is_said_before() {
    let world = World::new();
    let ended = run(
        &world,
        "run: echo \"$WORD\"; cat notes.md; pwd\nplugs:\n  - local\n  - env: {WORD: hello}\n  - files: {notes.md: \"a note\\n\"}\n",
    )
    .expect(0);
    let (dir, record) = only(&world);
    let workspace = dir.join("workspace");
    assert_eq!(
        ended.stdout,
        format!("hello\na note\n{}\n", workspace.display())
    );
    assert!(
        ended.stderr.contains("What the agent can reach"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("no wall"), "{}", ended.stderr);
    assert!(!workspace.exists(), "it goes with the session");
    assert_eq!(record["state"]["ok"], true);
}

#[test]
fn h8_h11_the_example_runs_a_scripted_agent_in_the_sandbox() {
    let world = World::new();
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sessions/sandbox.yaml");
    let ended = world
        .run(&["session", "run", example.to_str().unwrap(), "--json"])
        .expect(0);
    let lines: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = lines.last().unwrap();
    assert_eq!(last["ended"]["ok"], true, "{last}");
    let kinds: Vec<_> = last["isolation"]["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|layer| layer["kind"].clone())
        .collect();
    assert_eq!(kinds.last().unwrap(), "sandbox", "{kinds:?}");
    let said = lines
        .iter()
        .any(|line| line["event"]["event"]["text"] == "Done.");
    assert!(said, "{}", ended.stdout);
    let (dir, _) = only(&world);
    let transcript = std::fs::read_to_string(dir.join("transcript.jsonl")).unwrap();
    for wanted in [
        "session/prompt",
        "to-agent",
        "from-agent",
        "Greet whoever reads this.",
    ] {
        assert!(transcript.contains(wanted), "{transcript}");
    }
}

#[test]
fn h4_commands_act_on_the_host_that_their_plug_sees() {
    let world = World::new();
    let yaml = "\
run: cat /home/agent/where && test ! -e BASE/here && echo agent inside
plugs:
  - setup: [{run: 'echo runner > BASE/here', teardown: 'echo torn down >> BASE/here'}]
  - sandbox
  - setup: ['test ! -e BASE/here && echo inside > /home/agent/where']
";
    let base = world.path().to_str().unwrap().to_owned();
    let ended = run(&world, &yaml.replace("BASE", &base)).expect(0);
    assert_eq!(ended.stdout, "inside\nagent inside\n");
    let here = std::fs::read_to_string(world.path().join("here")).unwrap();
    assert_eq!(here, "runner\ntorn down\n");
}

#[test]
fn h4_a_failing_plug_is_named_and_what_was_begun_is_torn_down() {
    let world = World::new();
    let yaml = "\
run: echo never
plugs:
  - local
  - setup: [{run: 'true', teardown: 'echo down > BASE/down'}, 'echo no >&2; exit 3']
";
    let base = world.path().to_str().unwrap().to_owned();
    let ended = run(&world, &yaml.replace("BASE", &base)).expect(1);
    assert!(ended.stderr.contains("plug setup"), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
    assert!(world.path().join("down").exists());
}

#[test]
fn r3_h4_without_a_host_nothing_runs_and_mistakes_have_their_place() {
    let world = World::new();
    let ended = run(&world, "run: touch BASE\nplugs: [envs]\n").expect(2);
    assert!(ended.stderr.contains("SESSION.yaml:2:"), "{}", ended.stderr);
    let ended = run(&world, "run: echo never\nplugs:\n  - env: {A: b}\n").expect(3);
    assert!(
        ended.stderr.contains("no plug says where the agent runs"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stdout, "");
    let ended = run(&world, "agent: claude\nplugs: [sandbox]\n").expect(2);
    assert!(ended.stderr.contains("--prompt"), "{}", ended.stderr);
    world.run(&["session", "run", "missing.yaml"]).expect(2);
}

#[test]
fn h7_declared_secrets_reach_the_agent_and_are_masked_in_output_and_transcript() {
    let world = World::new();
    let yaml = "\
run: 'echo \"token $TOKEN\"; echo $TOKEN | base64; env | grep -c canary'
plugs:
  - sandbox
  - secrets: {TOKEN: {env: MY_TOKEN}}
  - record: {file: out.jsonl}
";
    let file = session(&world, yaml);
    let mut command = world.command(["session", "run", file.to_str().unwrap()]);
    command
        .env("MY_TOKEN", "canary-0123456789")
        .env("OTHER", "canary-other-98765");
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        stdout, "token [masked:TOKEN]\n[masked:TOKEN]\n1\n",
        "{stderr}"
    );
    assert!(
        stderr.contains("the secret TOKEN, from the variable MY_TOKEN"),
        "{stderr}"
    );
    let transcript = std::fs::read_to_string(world.path().join("out.jsonl")).unwrap();
    assert!(
        transcript.contains("[masked:TOKEN]") && !transcript.contains("canary"),
        "{transcript}"
    );
}

#[test]
fn h4_the_result_comes_back_as_a_branch_and_no_checkout_is_touched() {
    let world = World::new();
    let repo = world.path().join("repo");
    std::fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "-q", "-b", "main"]);
    std::fs::write(repo.join("a"), "one\n").unwrap();
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-q", "-m", "first"]);
    let yaml = "\
name: Change a
run: test \"$(cat a)\" = one && echo two > a && printf '#!/bin/sh\\ntouch PWNED\\n' > .git/hooks/post-commit && chmod +x .git/hooks/post-commit
plugs:
  - sandbox
  - workspace: {git: repo, out: {branch: result}}
";
    run(&world, yaml).expect(0);
    assert_eq!(git(&repo, &["show", "result:a"]).trim(), "two");
    assert_eq!(
        git(&repo, &["log", "-1", "--format=%s", "result"]).trim(),
        "Change a"
    );
    assert_eq!(std::fs::read_to_string(repo.join("a")).unwrap(), "one\n");
    assert_eq!(git(&repo, &["status", "--porcelain"]).trim(), "");
    // A branch that somebody has checked out is not moved under their feet.
    let ended = run(&world, &yaml.replace("branch: result", "branch: main")).expect(1);
    assert!(ended.stderr.contains("checked out"), "{}", ended.stderr);
}

#[test]
fn h4_the_result_comes_back_as_a_directory_and_overwrites_nothing() {
    let world = World::new();
    std::fs::create_dir(world.path().join("in")).unwrap();
    std::fs::write(world.path().join("in/f"), "x").unwrap();
    let yaml = "\
run: cp f g; ln -s /etc/passwd l
plugs:
  - sandbox
  - workspace: {directory: in, out: {directory: result}}
";
    run(&world, yaml).expect(0);
    assert_eq!(
        std::fs::read_to_string(world.path().join("result/g")).unwrap(),
        "x"
    );
    assert!(world.path().join("result/l").is_symlink());
    let ended = run(&world, yaml).expect(1);
    assert!(ended.stderr.contains("not empty"), "{}", ended.stderr);
}

/// The session's own process, by its parent.
pub(crate) fn worker(child: &Child) -> Option<Pid> {
    let parent = child.id().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((head, fields)) = stat.rsplit_once(") ") else {
            continue;
        };
        if fields.split(' ').nth(1) == Some(&parent) && head.contains("bulkhead") {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            return Pid::from_raw(pid);
        }
    }
    None
}

pub(crate) fn begin(world: &World, yaml: &str, more: &[&str]) -> Child {
    let file = session(world, yaml);
    let mut command = world.command(["session", "run", file.to_str().unwrap()]);
    command
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn h4_h5_a_killed_session_process_is_undone_by_its_parent() {
    let world = World::new();
    let yaml = "\
run: echo $$ > BASE/pid; sleep 600
plugs:
  - local
  - ports: {toHost: [{listen: BASE/forward, connect: '127.0.0.1:1'}]}
";
    let base = world.path().to_str().unwrap().to_owned();
    let child = begin(&world, &yaml.replace("BASE", &base), &[]);
    let pid_file = world.path().join("pid");
    wait_until("the command", || {
        std::fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n'))
    });
    let agent = std::fs::read_to_string(&pid_file)
        .unwrap()
        .trim()
        .to_owned();
    let (dir, _) = only(&world);
    assert!(dir.join("workspace").exists() && world.path().join("forward").exists());
    kill_process(worker(&child).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("ended without a report"), "{stderr}");
    assert!(
        !dir.join("workspace").exists() && !world.path().join("forward").exists(),
        "undone"
    );
    wait_until("the agent's end", || !is_alive(&agent));
}

#[test]
fn h4_what_a_killed_parent_left_is_undone_by_whoever_looks_next() {
    let world = World::new();
    let yaml = "run: echo $$ > BASE/pid; sleep 600\nplugs: [local]\n";
    let base = world.path().to_str().unwrap().to_owned();
    let mut child = begin(&world, &yaml.replace("BASE", &base), &[]);
    let pid_file = world.path().join("pid");
    wait_until("the command", || {
        std::fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n'))
    });
    let agent = std::fs::read_to_string(&pid_file)
        .unwrap()
        .trim()
        .to_owned();
    let session = worker(&child).unwrap();
    let (dir, _) = only(&world);
    // Both at once: nobody is left to tear down.
    kill_process(session, Signal::STOP).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    kill_process(session, Signal::KILL).unwrap();
    wait_until("the agent's end", || !is_alive(&agent));
    let listed = world.run(&["session", "list"]).expect(0);
    assert!(listed.stdout.contains("was killed"), "{}", listed.stdout);
    assert!(!dir.join("workspace").exists());
}

#[test]
fn h4_an_interrupt_tears_down() {
    let world = World::new();
    let yaml = "\
run: touch BASE/begun; sleep 600
plugs:
  - local
  - setup: [{run: 'true', teardown: 'touch BASE/down'}]
";
    let base = world.path().to_str().unwrap().to_owned();
    let child = begin(&world, &yaml.replace("BASE", &base), &[]);
    wait_until("the command", || world.path().join("begun").exists());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(world.path().join("down").exists());
}

#[test]
fn h15_a_paused_session_goes_on_with_its_work_its_conversation_and_its_mode() {
    let world = World::new();
    let work = world.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(
        work.join("steps.yaml"),
        "remember: memory.json\nsteps:\n  - run: echo more >> progress\n  - mode: code\n  - say: 'heard {prompts}'\n  - run: test -e go || { touch waiting; sleep 600; }\n",
    )
    .unwrap();
    let yaml = scripted("steps.yaml", "plugs:\n  - local: {directory: work}\n");
    let child = begin(&world, &yaml, &["--prompt", "first"]);
    wait_until("the agent", || work.join("waiting").exists());
    let (_, record) = only(&world);
    let id = record["order"]["id"].as_str().unwrap().to_owned();
    world.run(&["session", "pause", &id]).expect(0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (_, record) = only(&world);
    assert_eq!(record["state"]["state"], "paused");
    assert_eq!(record["state"]["conversation"]["mode"], "code");
    std::fs::write(work.join("go"), "").unwrap();
    // It begins in another mode, as agents do.
    let ended = world
        .run(&["session", "resume", &id[..5], "--prompt", "second"])
        .expect(0);
    assert!(
        ended.stdout.contains("heard first | second"),
        "{}",
        ended.stdout
    );
    assert!(!ended.stdout.contains("history of"), "{}", ended.stdout);
    assert_eq!(
        std::fs::read_to_string(work.join("progress")).unwrap(),
        "more\nmore\n"
    );
    let memory = std::fs::read_to_string(work.join("memory.json")).unwrap();
    assert!(memory.contains("\"mode\":\"code\""), "{memory}");
    world
        .run(&["session", "resume", &id, "--prompt", "third"])
        .expect(2);
}

#[test]
fn h8_at_a_terminal_lines_are_prompts_and_an_interrupt_gives_up_the_turn() {
    let world = World::new();
    std::fs::write(
        world.path().join("steps.yaml"),
        "steps:\n  - say: 'I heard {prompt}'\n  - try: test \"{prompt}\" != wait || sleep 600\n",
    )
    .unwrap();
    let yaml = scripted("steps.yaml", "plugs:\n  - local: {directory: .}\n");
    let file = session(&world, &yaml);
    let mut at = AtTerminal::start(world.command(["session", "run", file.to_str().unwrap()]));
    at.wait_for("> ");
    at.press("one\n");
    at.wait_for("I heard one");
    at.press("wait\n");
    at.wait_for("I heard wait");
    kill_process(Pid::from_child(&at.child), Signal::INT).unwrap();
    at.wait_for("Giving up the turn");
    std::thread::sleep(Duration::from_secs(4));
    at.press("two\n");
    at.wait_for("I heard two");
    at.press("\u{4}");
    let (code, text) = at.ended();
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn section_6_host_check_says_what_works_and_what_an_agent_could_reach() {
    let world = World::new();
    for host in ["local", "sandbox"] {
        let checked = world
            .run(&["host", "check", host, "--json"])
            .expect(0)
            .json();
        assert_eq!(checked["ok"], true, "{checked}");
        assert_eq!(
            checked["isolation"]["layers"]
                .as_array()
                .unwrap()
                .last()
                .unwrap()["kind"],
            host
        );
    }
    world.run(&["host", "check", "nonsense"]).expect(2);
    let ended = world.run(&["host", "check", "docker:nothing"]);
    assert_ne!(ended.code, 0, "there is no engine for this test");
}
