//! The published JSON Schema: current, in step with the reader, and right about the samples.

use std::collections::BTreeSet;

use bulkhead_model::workflow::{Known, Workflow, reader_fields, schema::schema};
use serde_json::Value;

use crate::workflow_support::{examples, phase_with, root};

fn as_json(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn r1_workflow_schema_drift() {
    let path = root().join("docs/workflow.schema.json");
    let current = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == current,
        "docs/workflow.schema.json is not what the code says; regenerate it with UPDATE_GENERATED=1"
    );
}

#[test]
fn r1_the_schema_and_the_reader_know_the_same_fields() {
    let schema = schema();
    let of = |definition: &str| -> BTreeSet<String> {
        let object = match definition {
            "" => &schema,
            name => &schema["$defs"][name],
        };
        assert_eq!(object["additionalProperties"], false, "{definition}");
        let properties = object["properties"].as_object().unwrap();
        properties.keys().cloned().collect()
    };
    let mut seen = BTreeSet::new();
    for (definition, fields) in reader_fields() {
        let fields: BTreeSet<String> = fields.iter().map(ToString::to_string).collect();
        assert_eq!(of(definition), fields, "{definition}");
        seen.insert(definition.to_owned());
    }
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let checked = seen.contains(name) || definition.get("properties").is_none();
        assert!(checked, "the reader's fields of {name} are not compared");
    }
}

#[test]
fn r1_every_field_of_the_schema_is_described() {
    fn walk(path: &str, value: &Value) {
        if let Some(properties) = value.get("properties").and_then(Value::as_object) {
            for (name, field) in properties {
                let described = field.get("description").is_some();
                assert!(described, "{path}.{name} has no description");
            }
        }
    }
    let schema = schema();
    walk("", &schema);
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        walk(name, definition);
    }
}

#[test]
fn r1_the_samples_are_valid_by_the_schema() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    for (name, text) in examples() {
        let errors: Vec<_> = validator
            .iter_errors(&as_json(&text))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

/// Every field set to something of a wrong form is refused by both.
#[test]
fn r1_what_the_schema_refuses_the_reader_refuses_too() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let mut texts = vec![
        "name: w\n".to_owned(),
        "name: w\nphases: []\n".to_owned(),
        "name: 5\nphases: [{name: a, run: x}]\n".to_owned(),
        "name: w\nsecrets: [lower]\nphases: [{name: a, run: x}]\n".to_owned(),
        "name: w\ninputs: {1a: {}}\nphases: [{name: a, run: x}]\n".to_owned(),
        "name: w\ncaps: {costUsd: 0}\nphases: [{name: a, run: x}]\n".to_owned(),
        "name: w\nphases: [{name: a}]\n".to_owned(),
        "name: w\nphases: [{name: a, run: x, prompt: y}]\n".to_owned(),
        "name: w\nphases: [{name: A B, run: x}]\n".to_owned(),
    ];
    texts.extend(
        [
            "sandbox: false",
            "timeout: 90",
            "timeout: 1.5h",
            "timeout: ~",
            "retries: 11",
            "resources: {memory: 4GB}",
            "resources: {pids: 1}",
            "resources: {cpus: 0}",
            "network: {}",
            "network: []",
            "network: {allow: x}",
            "env: {PORT: 80}",
            "env: {a b: x}",
            "gate: maybe",
            "gate: {approvers: []}",
            "gate: {onExpiry: reject}",
            "gate: {notify: [{}]}",
            "gate: {notify: [{webhook: 'file:///x'}]}",
            "needs: [A]",
            "needs: [a, a]",
            "artifacts: {out: {A B: x}}",
            "waitForLabels: 1",
        ]
        .map(phase_with),
    );
    for text in texts {
        assert!(
            !validator.is_valid(&as_json(&text)),
            "the schema accepts {text}"
        );
        let read = Workflow::read("w", &text, &Known::default());
        assert!(read.is_err(), "the reader accepts {text}");
    }
}

#[test]
fn r1_the_reference_names_every_field() {
    let reference = std::fs::read_to_string(root().join("docs/workflow.md")).unwrap();
    for (definition, fields) in reader_fields() {
        for field in fields {
            let named = [
                format!("`{field}`"),
                format!(".{field}`"),
                format!("`{field}:"),
                format!("`{field}."),
            ];
            let found = named.iter().any(|name| reference.contains(name.as_str()));
            assert!(found, "docs/workflow.md does not name {definition}.{field}");
        }
    }
}

/// The first YAML block of the reference is a workflow that works.
#[test]
fn r1_the_sample_in_the_reference_is_read() {
    let reference = std::fs::read_to_string(root().join("docs/workflow.md")).unwrap();
    let block = reference.split("```yaml\n").nth(1).unwrap();
    let text = block.split("```").next().unwrap();
    if let Err(error) = Workflow::read("docs/workflow.md", text, &Known::default()) {
        panic!("{error}");
    }
}
