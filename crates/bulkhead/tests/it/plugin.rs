//! P12: `bulkhead plugin`, with the real service behind it: real processes, real walls. They are of the program
//! `bulkhead-js`, which must be built beside `bulkhead` (the whole workspace is).

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::program::{Ended, World};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/plugins")
        .join(name)
}

const MODULE: &str = "\
interface Input { times: number }
export const tools = {
  spin(input: Input): { done: number } {
    for (let i = 0; i < input.times; i++) host.crypto.hash('sha256', 'x');
    return { done: input.times };
  },
  trip(input: Input): number {
    const wrong = input as unknown as { a: { b: number } };
    return wrong.a.b;
  },
  async tell() {
    const secret = await host.settings.getSecret('key');
    host.log.warn('it is', secret, host.settings.get('units'));
    return (await host.session.post('hi')).id;
  },
};
";

/// A plugin in a directory of the world, with more fields in its manifest.
fn plugin(world: &World, fields: Value) -> String {
    let directory = world.path().join("plugin");
    std::fs::create_dir_all(&directory).unwrap();
    let tool = json!({ "description": "a test" });
    let mut manifest = json!({
        "name": "test", "version": "1.0.0", "entry": "main.ts",
        "capabilities": { "tools": { "spin": tool, "trip": tool, "tell": tool } },
        "permissions": ["host:session:post"],
        "settings": { "units": { "type": "choice", "options": ["a", "b"], "default": "a" } },
        "secrets": { "key": {} },
    });
    manifest
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().cloned().unwrap());
    std::fs::write(directory.join("plugin.json"), manifest.to_string()).unwrap();
    std::fs::write(directory.join("main.ts"), MODULE).unwrap();
    directory.to_str().unwrap().to_owned()
}

fn file(world: &World, name: &str, content: &Value) -> String {
    let path = world.path().join(name);
    std::fs::write(&path, content.to_string()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn parsed(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn p12_the_examples_are_good_and_their_cases_hold() {
    for (name, cases) in [("weather", 5), ("webhook", 3)] {
        let (world, directory) = (World::new(), example(name));
        let directory = directory.to_str().unwrap();
        let checked = world.run(&["plugin", "check", directory]).expect(0);
        assert!(!checked.stdout.contains("MISSING"), "{}", checked.stdout);
        let tested = world.run(&["plugin", "test", directory]).expect(0);
        assert!(
            tested
                .stdout
                .contains(&format!("{cases} of {cases} cases hold")),
            "{}",
            tested.stdout
        );
        let left: Vec<_> = std::fs::read_dir(world.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert!(
            !left
                .iter()
                .any(|name| name.to_string_lossy().starts_with("bulkhead-plugin")),
            "{left:?}"
        );
    }
}

#[test]
fn p8_check_says_what_an_installer_sees_and_what_is_missing() {
    let world = World::new();
    let tool = json!({ "description": "a test" });
    let fields = json!({
        "capabilities": { "tools": { "spin": tool, "absent": tool }, "middleware": ["beforeTool"] },
        "egress": [{ "host": "B\u{dc}CHER.example.", "reason": "books" }, "*.example.org:8443"],
    });
    let directory = plugin(&world, fields);
    let ended = world.run(&["plugin", "check", &directory]).expect(1);
    for part in [
        "write in the chat  (host:session:post)",
        "reach xn--bcher-kva.example:443  (books)",
        "reach *.example.org:8443",
        "tools.absent",
        "MISSING",
        "promised by no capability: tools.trip, tools.tell",
    ] {
        assert!(
            ended.stdout.contains(part),
            "{part:?} is not in:\n{}",
            ended.stdout
        );
    }
    let object = parsed(
        &world
            .run(&["plugin", "check", &directory, "--json"])
            .expect(1),
    );
    assert_eq!(
        object["egress"],
        json!(["xn--bcher-kva.example:443", "*.example.org:8443"])
    );
    let missing: Vec<_> = object["handlers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["missing"] == true)
        .map(|row| &row["export"])
        .collect();
    assert_eq!(missing, ["tools.absent", "middleware.beforeTool"]);
}

#[test]
fn p8_a_wrong_manifest_is_wrong_input_and_named_with_its_place() {
    let world = World::new();
    let directory = plugin(&world, json!({ "egres": [] }));
    let ended = world.run(&["plugin", "check", &directory]).expect(2);
    assert!(
        ended.stderr.contains("did you mean `egress`?"),
        "{}",
        ended.stderr
    );
    let nothing = world.run(&["plugin", "check", "nowhere"]).expect(2);
    assert!(
        nothing.stderr.contains("nowhere/plugin.json"),
        "{}",
        nothing.stderr
    );
}

#[test]
fn p7_a_fault_has_the_authors_own_place() {
    let world = World::new();
    let directory = plugin(&world, json!({}));
    let ended = world
        .run(&["plugin", "run", &directory, "--entry", "tools.trip"])
        .expect(1);
    assert!(
        ended.stderr.contains("at trip (main.ts:9:20)"),
        "{}",
        ended.stderr
    );
    let object = parsed(
        &world
            .run(&[
                "plugin",
                "run",
                &directory,
                "--entry",
                "tool.trip",
                "--json",
            ])
            .expect(1),
    );
    assert_eq!(
        (&object["fault"]["class"], &object["fault"]["reason"]),
        (&json!("crash"), &json!("threw"))
    );
    assert_eq!(
        object["fault"]["stack"][0],
        json!({ "function": "trip", "file": "main.ts", "line": 9, "column": 20 })
    );
    std::fs::write(
        world.path().join("plugin/main.ts"),
        "export const a = 1;\nenum B { c }\n",
    )
    .unwrap();
    let ended = world
        .run(&["plugin", "run", &directory, "--entry", "tools.trip"])
        .expect(1);
    assert!(
        ended.stderr.contains("main.ts:2:1") && ended.stderr.contains("enum"),
        "{}",
        ended.stderr
    );
}

#[test]
fn p21_what_was_used_is_said_and_four_fifths_of_a_limit_are_a_warning() {
    let world = World::new();
    let directory = plugin(&world, json!({}));
    let run = |times: u32| {
        let arguments = [
            "plugin",
            "run",
            &directory,
            "--entry",
            "tools.spin",
            "--input",
            "-",
        ];
        world.run_with_input(&arguments, &format!("{{\"times\": {times}}}"))
    };
    let ended = run(161).expect(0);
    assert_eq!(
        parsed(&ended),
        json!({ "done": 161 }),
        "the result alone is on standard output"
    );
    assert!(ended.stderr.contains("161  of 200"), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("warning: crypto_operations is near its limit: 161 of 200"),
        "{}",
        ended.stderr
    );
    assert!(!run(10).expect(0).stderr.contains("warning"));
    assert!(run(201).expect(1).stderr.contains("200"));
}

#[test]
fn p5_secrets_settings_and_replies_come_from_files() {
    let world = World::new();
    let directory = plugin(&world, json!({}));
    let secrets = file(
        &world,
        "secrets.json",
        &json!({ "key": "canary-0123456789" }),
    );
    let settings = file(&world, "settings.json", &json!({ "units": "b" }));
    let replies =
        json!([{ "call": "session.post", "arguments": ["hi"], "answer": { "id": "m-1" } }]);
    let replies = file(&world, "replies.json", &replies);
    let arguments = [
        "plugin",
        "run",
        &directory,
        "--entry",
        "tools.tell",
        "--secrets",
        &secrets,
        "--settings",
        &settings,
    ];
    let ended = world.run(&arguments).expect(1);
    assert!(
        ended
            .stderr
            .contains("host.session.post is not offered here"),
        "{}",
        ended.stderr
    );
    let with_replies = [&arguments[..], &["--replies", &replies, "--json"]].concat();
    let ended = world.run(&with_replies).expect(0);
    let object = parsed(&ended);
    assert_eq!(object["value"], "m-1");
    assert_eq!(object["logs"][0]["text"], "it is [masked:key] b", "E15");
    assert!(!ended.stdout.contains("canary") && !ended.stderr.contains("canary"));
    std::fs::set_permissions(&secrets, std::fs::Permissions::from_mode(0o644)).unwrap();
    let ended = world.run(&arguments).expect(2);
    assert!(ended.stderr.contains("chmod 600"), "{}", ended.stderr);
}

#[test]
fn p12_a_case_that_does_not_hold_is_shown_with_its_difference() {
    let world = World::new();
    let directory = plugin(&world, json!({}));
    let tests = Path::new(&directory).join("tests");
    std::fs::create_dir(&tests).unwrap();
    let case =
        |name: &str, content: Value| std::fs::write(tests.join(name), content.to_string()).unwrap();
    case(
        "good.json",
        json!({ "entry": "tools.spin", "input": { "times": 1 }, "expect": { "value": { "done": 1 } } }),
    );
    case(
        "wrong.json",
        json!({ "entry": "tools.spin", "input": { "times": 1 }, "expect": { "value": { "done": 2 } } }),
    );
    case(
        "fault.json",
        json!({ "entry": "tools.trip", "expect": { "fault": { "class": "timeout" } } }),
    );
    case(
        "calls.json",
        json!({ "entry": "tools.spin", "input": { "times": 0 }, "expect": { "calls": [{ "call": "fetch" }], "logs": ["x"] } }),
    );
    let ended = world.run(&["plugin", "test", &directory]).expect(1);
    assert!(
        ended.stdout.contains("ok    good") && ended.stdout.contains("1 of 4 cases hold"),
        "{}",
        ended.stdout
    );
    for part in [
        "FAIL  wrong",
        "\"done\": 2",
        "FAIL  fault",
        "expected another fault than",
        "FAIL  calls",
        "expected the call fetch",
        "no line of the log has \"x\"",
    ] {
        assert!(
            ended.stdout.contains(part),
            "{part:?} is not in:\n{}",
            ended.stdout
        );
    }
    world
        .run(&["plugin", "test", &directory, "--only", "good"])
        .expect(0);
    case(
        "wrong.json",
        json!({ "entry": "tools.spin", "expects": {} }),
    );
    let ended = world.run(&["plugin", "test", &directory]).expect(2);
    assert!(
        ended.stderr.contains("wrong.json: unknown field `expects`"),
        "{}",
        ended.stderr
    );
}
