//! Workflows to read in tests.

use std::path::PathBuf;

use bulkhead_model::workflow::{Known, Workflow};

pub(crate) fn known() -> Known {
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    Known {
        agents: names(&["claude", "codex", "gemini", "opencode", "scripted"]),
        notifiers: names(&["page-the-owner"]),
        toolchains: names(&["rust", "node"]),
    }
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The sample workflows, with their names.
pub(crate) fn examples() -> Vec<(String, String)> {
    let directory = root().join("examples/workflows");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "yaml") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, std::fs::read_to_string(path).unwrap()));
        }
    }
    let demo = root().join("examples/demo/.bulkhead/workflow.yaml");
    found.push(("demo".to_owned(), std::fs::read_to_string(demo).unwrap()));
    found.sort();
    found
}

pub(crate) fn read(text: &str) -> Workflow {
    match Workflow::read("w.yaml", text, &known()) {
        Ok(workflow) => workflow,
        Err(error) => panic!("{error}"),
    }
}

/// What is said about a workflow that must not be read.
pub(crate) fn complaint(text: &str) -> String {
    match Workflow::read("w.yaml", text, &known()) {
        Ok(workflow) => panic!("it was read: {workflow:?}"),
        Err(error) => error.to_string(),
    }
}

/// A workflow of one command phase with these lines added to the phase.
pub(crate) fn phase_with(lines: &str) -> String {
    let mut text = "name: w\nphases:\n  - name: p\n    run: true-command\n".to_owned();
    for line in lines.lines() {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text
}
