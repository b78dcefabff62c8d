//! DESIGN section 6: wrong usage is 2 (125 for `sandbox exec`), in words on standard error and, when asked, in JSON.

use crate::program::World;

#[test]
fn section_6_wrong_usage_is_2_with_words_that_help() {
    let world = World::new();
    let ended = world.run(&["runs", "aprove"]).expect(2);
    assert_eq!(ended.stdout, "");
    insta::assert_snapshot!(ended.stderr, @r"
    error: unrecognized subcommand 'aprove'

      tip: a similar subcommand exists: 'approve'

    Usage: bulkhead runs [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn section_6_wrong_input_is_2_with_the_remedy() {
    let world = World::new();
    let ended = world.run(&["run", "w.yaml", "--repo", "nowhere"]).expect(2);
    insta::assert_snapshot!(ended.stderr, @"bulkhead: the repository nowhere: No such file or directory (os error 2)");
    let ended = world.run(&["run", "/etc/hosts", "--repo", "."]).expect(2);
    insta::assert_snapshot!(ended.stderr, @r"
    bulkhead: the workflow /etc/hosts is not in the repository
      → name it by its path in the repository: it is read from the commit that the run starts from
    ");
}

#[test]
fn section_6_misuse_of_sandbox_exec_is_125_because_2_is_the_commands_own() {
    let world = World::new();
    let ended = world
        .run(&["sandbox", "exec", "--memory", "5", "--", "true"])
        .expect(125);
    insta::assert_snapshot!(ended.stderr, @r"
    error: invalid value '5' for '--memory <SIZE>': expected a size with its unit, such as 512MiB or 2GB

    For more information, try '--help'.
    ");
}

#[test]
fn r8_another_engine_is_refused_by_name_and_never_replaced() {
    let world = World::new();
    for engine in ["runc", "crun", "youki", "runsc", "docker", "podman"] {
        let ended = world
            .run(&["sandbox", "exec", "--engine", engine, "--", "true"])
            .expect(125);
        assert!(
            ended
                .stderr
                .contains(&format!("the engine {engine} is not part of this version")),
            "{}",
            ended.stderr
        );
    }
    world
        .run(&["sandbox", "exec", "--image", "debian:12", "--", "true"])
        .expect(125);
}

#[test]
fn section_6_with_json_an_error_is_one_object_and_its_words_are_on_stderr() {
    let world = World::new();
    for arguments in [
        &["--json", "runs", "aprove"][..],
        &["run", "w.yaml", "--repo", "nowhere", "--json"],
    ] {
        let ended = world.run(arguments).expect(2);
        let object = ended.json();
        assert_eq!(object["exit_code"], 2);
        assert_eq!(object["error"]["kind"], "usage");
        assert!(object["error"]["message"].is_string());
        assert_ne!(ended.stderr, "");
    }
}

#[test]
fn section_6_a_configuration_with_an_unknown_field_is_refused_with_its_line() {
    let world = World::new();
    let config = world.path().join("config.yaml");
    std::fs::write(&config, "places: 2\nproxxy: http://proxy.example.com\n").unwrap();
    let ended = world
        .run(&["--config", config.to_str().unwrap(), "runs", "list"])
        .expect(2);
    assert!(ended.stderr.contains("line 2"), "{}", ended.stderr);
    assert!(ended.stderr.contains("proxxy"), "{}", ended.stderr);
    world
        .run(&["--config", "nowhere.yaml", "runs", "list"])
        .expect(2);
}

#[test]
fn section_6_help_is_on_stdout_with_examples_and_0() {
    let world = World::new();
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["runs", "--help"],
        &["sandbox", "exec", "--help"],
    ] {
        let ended = world.run(arguments).expect(0);
        assert!(
            ended.stdout.contains("  bulkhead "),
            "no example in {arguments:?}"
        );
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn section_6_a_closed_pipe_is_no_panic() {
    let world = World::new();
    let mut command = world.command(["secrets", "list", "--json"]);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let ended = command
        .stdout(std::fs::File::from(writer))
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("panic"));
}
