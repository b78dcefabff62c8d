//! The session's file: what is read, what is refused and in which words, and its published schema.

use std::collections::BTreeSet;

use bulkhead_model::{
    session::{
        FileContent, HostPlug, PlugConfig, Purpose, SecretSource, SessionFile, SessionWork,
        WorkspaceOut, WorkspaceSource, reader_fields, schema::schema,
    },
    workflow::Known,
};
use serde_json::Value;

use crate::workflow_support::{known, root};

fn read(text: &str) -> SessionFile {
    match SessionFile::read("s.yaml", text, &known(), Purpose::Session) {
        Ok(file) => file,
        Err(error) => panic!("{error}"),
    }
}

fn complaint(text: &str) -> String {
    match SessionFile::read("s.yaml", text, &known(), Purpose::Session) {
        Ok(file) => panic!("it was read: {file:?}"),
        Err(error) => error.to_string(),
    }
}

fn examples() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("examples/sessions")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "yaml") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // The scripted agent's steps are no session.
            if !name.starts_with("steps") {
                found.push((name, std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn h4_a_session_says_its_plugs_in_order() {
    let file = read(
        "\
agent: claude
prompt: Fix it.
idle: 10m
plugs:
  - ssh: {host: build, persistent: true}
  - docker: debian:stable
  - sandbox
  - workspace: {git: ., revision: main, out: {branch: fixed}}
  - env: {A: b}
  - files: {notes.md: hello, bin/x: {from: ./x, mode: '0755'}}
  - setup: [make deps]
  - secrets: {TOKEN: {env: MY_TOKEN}}
  - script: {file: ./plug.ts, config: {list: [1, true, null, x]}}
",
    );
    assert!(matches!(&file.work, Some(SessionWork::Agent(agent)) if agent.name == "claude"));
    assert_eq!(file.idle_ms, Some(600_000));
    let hosts: Vec<_> = file
        .plugs
        .iter()
        .filter_map(|plug| match plug {
            PlugConfig::Host(host) => Some(host.kind()),
            _ => None,
        })
        .collect();
    assert_eq!(hosts, ["ssh", "docker", "sandbox"]);
    assert!(matches!(&file.plugs[0], PlugConfig::Host(HostPlug::Ssh(ssh)) if ssh.persistent));
    let PlugConfig::Workspace(workspace) = &file.plugs[3] else {
        panic!()
    };
    assert!(
        matches!(&workspace.source, WorkspaceSource::Git { repository, .. } if repository == ".")
    );
    assert_eq!(
        workspace.out,
        Some(WorkspaceOut::Branch("fixed".to_owned()))
    );
    let PlugConfig::Files(files) = &file.plugs[5] else {
        panic!()
    };
    assert_eq!(files[1].content, FileContent::From("./x".to_owned()));
    assert_eq!(files[1].mode, Some(0o755));
    let PlugConfig::Secrets(secrets) = &file.plugs[7] else {
        panic!()
    };
    assert_eq!(secrets[0].source, SecretSource::Env("MY_TOKEN".to_owned()));
    let PlugConfig::Script(script) = &file.plugs[8] else {
        panic!()
    };
    assert_eq!(
        script.config,
        serde_json::json!({"list": [1, true, null, "x"]})
    );
}

#[test]
fn h4_a_plug_survives_the_way_to_the_session() {
    let file = read(
        "run: x\nplugs: [sandbox, {docker: a}, {ssh: b}, {ports: {toHost: [{listen: '127.0.0.1:0', connect: /run/x}]}}, record]",
    );
    let json = serde_json::to_string(&file.plugs).unwrap();
    let back: Vec<PlugConfig> = serde_json::from_str(&json).unwrap();
    assert_eq!(back, file.plugs);
}

#[test]
fn h4_every_problem_is_said_with_line_column_field_and_the_nearest_name() {
    let text = "\
agnt: claude
run: make
plugs:
  - sandbx
  - docker: {imag: x}
  - ssh: -oProxyCommand=x
  - env: {BULKHEAD_X: a, N: 5}
  - files: {a: {text: x, from: y}, b: {text: x, mode: 0755}}
  - secrets: [lower]
  - ports: {toHost: [{listen: 8080, connect: '127.0.0.1:1'}]}
  - script: plug.py
  - workspace: {directory: ., out: {branch: x}}
  - mcp: {tools: {}}
  - env
  - {env: {A: b}, files: {}}
";
    insta::assert_snapshot!(complaint(text));
}

#[test]
fn h4_an_agent_or_a_command_and_not_both() {
    insta::assert_snapshot!(complaint("plugs: []"), @"s.yaml:1:1: expected `agent` (who works) or `run` (a shell command)");
    insta::assert_snapshot!(complaint("agent: claude\nrun: x\nplugs: []"), @"s.yaml:2:6: run: expected `agent` or `run`, found both");
    let hosts = SessionFile::read("h", "plugs: [sandbox]", &Known::default(), Purpose::Hosts);
    assert_eq!(hosts.unwrap().plugs.len(), 1);
}

#[test]
fn h4_the_examples_are_read_and_valid_by_the_schema() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let examples = examples();
    assert!(examples.len() >= 3);
    for (name, text) in examples {
        let read = SessionFile::read(&name, &text, &known(), Purpose::Session);
        assert!(read.is_ok(), "{}", read.unwrap_err());
        let json: Value = serde_saphyr::from_str(&text).unwrap();
        let errors: Vec<_> = validator
            .iter_errors(&json)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

#[test]
fn h4_session_schema_drift() {
    let path = root().join("docs/session.schema.json");
    let current = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == current,
        "docs/session.schema.json is not what the code says; regenerate it with UPDATE_GENERATED=1"
    );
}

#[test]
fn h4_the_schema_and_the_reader_know_the_same_fields_and_all_are_described() {
    let schema = schema();
    let mut seen = BTreeSet::new();
    for (definition, fields) in reader_fields() {
        let object = match definition {
            "" => &schema,
            name => &schema["$defs"][name],
        };
        assert_eq!(object["additionalProperties"], false, "{definition}");
        let properties = object["properties"].as_object().unwrap();
        let known: BTreeSet<_> = properties.keys().map(String::as_str).collect();
        assert_eq!(known, fields.into_iter().collect(), "{definition}");
        for (name, field) in properties {
            let described = field.get("description").is_some();
            assert!(described, "{definition}.{name} has no description");
        }
        seen.insert(definition.to_owned());
    }
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let checked = seen.contains(name) || definition.get("properties").is_none();
        assert!(checked, "the reader's fields of {name} are not compared");
    }
}
