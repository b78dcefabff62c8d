//! `sandbox exec`: each exit code of DESIGN section 6, and what the command sees.

use crate::program::World;

#[test]
fn section_6_a_commands_own_code_comes_back() {
    let world = World::new();
    let ended = world
        .run(&[
            "sandbox",
            "exec",
            "--",
            "sh",
            "-c",
            "echo out; echo err >&2; exit 7",
        ])
        .expect(7);
    assert_eq!(ended.stdout, "out\n");
    assert!(ended.stderr.contains("err\n"));
    world.run(&["sandbox", "exec", "--", "true"]).expect(0);
}

#[test]
fn section_6_not_found_not_executable_signal_and_time_have_their_codes() {
    let world = World::new();
    world
        .run(&["sandbox", "exec", "--", "no-such-program"])
        .expect(127);
    world
        .run(&["sandbox", "exec", "--", "/etc/passwd"])
        .expect(126);
    world
        .run(&["sandbox", "exec", "--", "sh", "-c", "kill -TERM $$"])
        .expect(143);
    let timed = world
        .run(&["sandbox", "exec", "--time", "300ms", "--", "sleep", "600"])
        .expect(124);
    assert!(timed.stderr.contains("ran out of time"), "{}", timed.stderr);
}

#[test]
fn case_57_a_memory_bomb_is_named_and_not_only_137() {
    let world = World::new();
    let bomb = "x=$(head -c 400000000 /dev/zero | tr '\\0' x); echo ${#x}";
    let ended = world
        .run(&[
            "sandbox", "exec", "--memory", "64MiB", "--json", "--", "sh", "-c", bomb,
        ])
        .expect(137);
    assert_eq!(ended.json()["reason"]["kind"], "oom");
    assert!(
        ended.stderr.contains("went over its memory limit"),
        "{}",
        ended.stderr
    );
}

#[test]
fn section_6_with_json_the_commands_output_is_not_on_stdout() {
    let world = World::new();
    let ended = world
        .run(&["sandbox", "exec", "--json", "--", "echo", "hello"])
        .expect(0);
    let object = ended.json();
    assert_eq!(
        object["reason"],
        serde_json::json!({"kind": "exit", "code": 0})
    );
    assert_eq!(object["exit_code"], 0);
    assert!(ended.stderr.contains("hello\n"));
}

#[test]
fn r6_a_workspace_is_what_was_named_and_no_variable_comes_along() {
    let world = World::new();
    let workspace = world.path().join("work");
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(workspace.join("in"), "given").unwrap();
    let mut command = world.command([
        "sandbox",
        "exec",
        "--workspace",
        "work",
        "--env",
        "A=b",
        "--env",
        "MINE",
        "--",
    ]);
    command.args([
        "sh",
        "-c",
        "cat in; printf made >out; echo \"|$A|$MINE|$CANARY|\"",
    ]);
    let output = command
        .env("MINE", "mine")
        .env("CANARY", "canary")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "given|b|mine||\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        std::fs::read_to_string(workspace.join("out")).unwrap(),
        "made"
    );
}

#[test]
fn section_6_standard_input_reaches_the_command_and_ends() {
    let world = World::new();
    let ended = world
        .run_with_input(&["sandbox", "exec", "--", "tr", "a-z", "A-Z"], "hello\n")
        .expect(0);
    assert_eq!(ended.stdout, "HELLO\n");
}

#[test]
fn d5_case_50_without_allow_nothing_is_reachable_and_with_it_the_rest_is_refused_in_words() {
    let world = World::new();
    let probe = "command -v python3 >/dev/null || exit 0; \
        python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 3128), 2)' 2>/dev/null && exit 9; exit 0";
    world
        .run(&["sandbox", "exec", "--", "sh", "-c", probe])
        .expect(0);
    let ask = r#"python3 - <<'EOF'
import socket
s = socket.create_connection(("127.0.0.1", 3128), 5)
s.sendall(b"CONNECT other.example.com:443 HTTP/1.1\r\nHost: other.example.com:443\r\n\r\n")
print(s.recv(4096).decode().splitlines()[0])
EOF"#;
    let ended = world
        .run(&[
            "sandbox", "exec", "--allow", "pypi.org", "--", "sh", "-c", ask,
        ])
        .expect(0);
    assert!(ended.stdout.contains("403"), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("refused other.example.com:443"),
        "{}",
        ended.stderr
    );
    world
        .run(&["sandbox", "exec", "--allow", "not a host", "--", "true"])
        .expect(125);
}
