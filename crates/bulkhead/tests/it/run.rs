//! `bulkhead run`: each way a run ends has its code, and an interrupt leaves nothing behind.

use std::{
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use crate::program::{World, git};

/// A workflow file of its own, for runs without a repository.
fn workflow(world: &World, text: &str) -> PathBuf {
    let path = world.path().join("workflow.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn r1_a_run_without_a_repository_completes_with_0() {
    let world = World::new();
    workflow(
        &world,
        "name: hello\nphases:\n  - name: say\n    run: echo hello from $(id -u)\n    gate: none\n",
    );
    let ended = world.run(&["run", "workflow.yaml", "--json"]).expect(0);
    assert_eq!(ended.json()["run"]["status"], "completed");
    assert!(
        ended.stderr.contains("say │ hello from 1000"),
        "{}",
        ended.stderr
    );
}

/// DESIGN 4: whichever command comes first makes the data directory, for this user alone.
#[test]
fn section_4_a_first_command_that_only_looks_leaves_a_private_data_directory() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let listed = world.run(&["runs", "list", "--json"]).expect(0).json();
    assert_eq!(listed["runs"], serde_json::json!([]));
    let mode = std::fs::metadata(world.data_dir())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn r1_a_wrong_workflow_is_2_with_file_line_and_the_nearest_name() {
    let world = World::new();
    workflow(&world, "name: x\nphases:\n  - name: a\n    rum: echo\n");
    let ended = world.run(&["run", "workflow.yaml", "--json"]).expect(2);
    let object = ended.json();
    assert_eq!(object["error"]["kind"], "invalid-workflow");
    let said = format!(
        "{}{}",
        object["error"]["message"], object["error"]["findings"]
    );
    assert!(
        said.contains("rum") && said.contains('4') && said.contains("run"),
        "{said}"
    );
}

/// R1: before any work starts.
#[test]
fn r1_a_misspelt_agent_is_2_with_its_place_and_the_nearest_name() {
    let world = World::new();
    workflow(
        &world,
        "name: x\nphases:\n  - name: first\n    run: echo begun\n  - name: a\n    agent: claud\n    prompt: p\n",
    );
    let ended = world.run(&["run", "workflow.yaml", "--json"]).expect(2);
    let error = &ended.json()["error"];
    assert_eq!(error["kind"], "invalid-workflow");
    let said = format!("{}{}", error["message"], error["findings"]);
    assert!(
        said.contains("6:12") && said.contains("did you mean `claude`"),
        "{said}"
    );
    assert!(!ended.stderr.contains("begun"), "{}", ended.stderr);
}

#[test]
fn r2_a_phase_that_fails_parks_and_is_1() {
    let world = World::new();
    workflow(
        &world,
        "name: x\nphases:\n  - name: a\n    run: exit 3\n    gate: none\n",
    );
    for flags in [&["--json"][..], &["--yes", "--json"]] {
        let ended = world
            .run(&[&["run", "workflow.yaml"], flags].concat())
            .expect(1);
        let run = &ended.json()["run"];
        assert_eq!(run["status"], "waiting");
        assert_eq!(run["gate"]["why"], "parked");
        assert!(
            ended.stderr.contains("exited with code 3"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn h5_h7_case_31_a_session_inherits_nothing_and_an_interrupt_leaves_nothing() {
    let world = World::new();
    workflow(
        &world,
        "name: x\nphases:\n  - name: a\n    run: echo begun; sleep 600\n    gate: none\n",
    );
    let mut command = world.command(["run", "workflow.yaml", "--json"]);
    command
        .env("ANTHROPIC_API_KEY", "canary-93b1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let worker = wait_for("the session's process", || worker_of(child.id()));
    wait_for("the phase's command", || {
        descendants(worker).into_iter().find(|pid| is_sleep(*pid))
    });
    let environ = std::fs::read_to_string(format!("/proc/{worker}/environ")).unwrap();
    let names: Vec<_> = environ
        .split_terminator('\0')
        .map(|entry| entry.split('=').next().unwrap())
        .collect();
    assert_eq!(names, ["PATH"], "the session's environment");
    for pid in [vec![child.id()], descendants(child.id())].concat() {
        for file in ["environ", "cmdline"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            assert!(
                !String::from_utf8_lossy(&bytes).contains("canary-93b1"),
                "{file} of {pid}"
            );
        }
    }
    let family = descendants(child.id());
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let ended = finish(child);
    assert_eq!(ended.0, Some(1), "{}", ended.1);
    let result: serde_json::Value = serde_json::from_str(ended.1.trim()).unwrap();
    assert_eq!(result["run"]["status"], "cancelled");
    // The last of them watch the command's own end, so they go right after it.
    for pid in family {
        let entry = format!("/proc/{pid}");
        wait_for("the end of every process", || {
            (!Path::new(&entry).exists()).then_some(())
        });
    }
}

#[test]
fn case_25_while_one_process_works_another_window_sees_and_cancels_it() {
    let world = World::new();
    workflow(
        &world,
        "name: x\nphases:\n  - name: a\n    run: sleep 600\n    gate: none\n",
    );
    let mut command = world.command(["run", "workflow.yaml", "--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(world.path().join("said")).unwrap())
        .spawn()
        .unwrap();
    let listed = wait_for("the run in another window", || {
        let ended = child.try_wait().unwrap();
        let said = || std::fs::read_to_string(world.path().join("said")).unwrap();
        assert!(ended.is_none(), "it ended before it ran: {}", said());
        let ended = world.run(&["runs", "list", "--json"]);
        (ended.code == 0)
            .then(|| ended.json())
            .filter(|list| list["runs"][0]["status"] == "running")
    });
    let id = listed["runs"][0]["id"].as_str().unwrap().to_owned();
    world.run(&["runs", "cancel", &id, "--json"]).expect(0);
    let ended = finish(child);
    assert_eq!(ended.0, Some(1), "{}", ended.1);
    assert_eq!(
        world.run(&["runs", "show", &id, "--json"]).expect(0).json()["status"],
        "cancelled"
    );
}

#[test]
fn r19_serve_answers_with_its_token_and_ends_at_a_signal_with_0() {
    let world = World::new();
    let mut command = world.command(["serve", "--listen", "127.0.0.1:0", "--json"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let address = wait_for("the server's address", || {
        std::fs::read_to_string(world.data_dir().join("address"))
            .ok()
            .filter(|a| a.ends_with('\n'))
    });
    let token = world.data_dir().join("token");
    let asked = |token: &Path| {
        let mut command = world.command(["runs", "--server", address.trim(), "--token-file"]);
        command
            .arg(token)
            .args(["list", "--json"])
            .env("BULKHEAD_DATA_DIR", world.path().join("elsewhere"));
        command.output().unwrap()
    };
    let good = wait_for("an answer", || {
        Some(asked(&token)).filter(|output| output.status.code() == Some(0))
    });
    assert_eq!(good.stdout, b"{\"runs\":[]}\n");
    let wrong = world.path().join("wrong-token");
    std::fs::write(&wrong, "no-such-token").unwrap();
    assert_eq!(asked(&wrong).status.code(), Some(2));
    from_elsewhere(&world, address.trim(), &token);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let ended = finish(child);
    assert_eq!(ended.0, Some(0), "{}", ended.1);
    assert!(!world.data_dir().join("address").exists());
}

/// R18: a person elsewhere keeps the server's token once; then `--server` is enough to begin a run there.
fn from_elsewhere(world: &World, server: &str, token: &Path) {
    let there = |arguments: &[&str], input: &str| {
        let arguments = [arguments, &["--server", server, "--json"]].concat();
        world.run_with_input(&arguments, input)
    };
    workflow(
        world,
        "name: hello\nphases:\n  - name: say\n    run: echo hello there\n    gate: none\n",
    );
    let refused = there(&["run", "workflow.yaml"], "").expect(2);
    assert!(refused.stderr.contains("bulkhead login") || refused.stdout.contains("bulkhead login"));
    there(&["login"], "no-such-token").expect(2);
    there(&["login"], &std::fs::read_to_string(token).unwrap()).expect(0);
    let ended = there(&["run", "workflow.yaml"], "").expect(0);
    assert_eq!(ended.json()["run"]["status"], "completed");
    assert!(
        ended.stderr.contains("say │ hello there"),
        "{}",
        ended.stderr
    );
    assert_eq!(there(&["logout"], "").expect(0).json()["removed"], true);
    there(&["runs", "list"], "").expect(2);
}

/// Case 44: what one door of the sandbox refuses, the others refuse too: a command, git, and what a phase hands on.
/// (The file API and whatever is started for an agent: `case_44_…` among the hosts' tests.)
#[test]
fn case_44_a_path_that_a_command_cannot_read_leaves_by_no_other_door() {
    const CANARY: &str = "canary-4d1f-of-another-repository";
    let world = World::new();
    let elsewhere = world.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("secret"), CANARY).unwrap();
    git(&elsewhere, &["init", "-q", "-b", "main"]);
    git(&elsewhere, &["add", "."]);
    git(&elsewhere, &["commit", "-q", "-m", "secret"]);
    let place = elsewhere.display();
    let text = format!(
        "name: x
phases:
  - name: a
    run: |
      cat {place}/secret && exit 90
      echo more >> {place}/secret && exit 91
      git clone {place} copy && exit 92
      git -C {place} show main:secret && exit 93
      ln -s {place}/secret out
      echo all doors are closed
    artifacts:
      out:
        found: out
    gate: none
"
    );
    workflow(&world, &text);
    let ended = world.run(&["run", "workflow.yaml", "--json"]);
    assert!(
        ended.stderr.contains("all doors are closed"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains(CANARY) && !ended.stdout.contains(CANARY));
    assert_eq!(ended.code, 1, "a link is no artifact: {}", ended.stderr);
    for file in std::fs::read_dir(world.data_dir().join("artifacts")).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains(CANARY));
    }
    assert_eq!(
        std::fs::read_to_string(elsewhere.join("secret")).unwrap(),
        CANARY
    );
}

fn finish(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Every process below `root`, as the kernel lists children.
fn descendants(root: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        for task in tasks {
            let children =
                std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            next.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        found.push(pid);
    }
    found.retain(|pid| *pid != root);
    found
}

fn worker_of(root: u32) -> Option<u32> {
    let is_worker = |pid: &u32| cmdline(*pid).contains("session-worker");
    descendants(root).into_iter().find(is_worker)
}

fn is_sleep(pid: u32) -> bool {
    cmdline(pid).starts_with("sleep\x00600")
}

fn cmdline(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}
