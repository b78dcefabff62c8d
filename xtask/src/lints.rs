//! One compilation for lints, tests and the demo: the workspace is built with clippy as its compiler
//! (`.cargo/config.toml`), and this check reads what the compiler said. Cargo says the warnings of what it
//! does not need to compile again too, so nothing is built twice to learn that it is clean.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{findings::Findings, tree::Tree};

const CHECK: &str = "lints";

/// One line of cargo's JSON. Fields that this check does not need are not read.
#[derive(Deserialize)]
struct Message {
    reason: String,
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    message: String,
    rendered: Option<String>,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: u64,
    is_primary: bool,
}

/// Builds everything that the tests need, and shows what the compiler has to say about it.
#[expect(
    clippy::print_stderr,
    reason = "the compiler's words are for the person who called it"
)]
pub(crate) fn check_tree(tree: &Tree) -> Result<Findings> {
    let mut cargo = Command::new("cargo")
        .args(["test", "--no-run", "--locked", "--message-format=json"])
        .current_dir(tree.root())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo")?;
    let stdout = cargo
        .stdout
        .take()
        .context("cargo has no standard output")?;
    let mut findings = Findings::default();
    for line in BufReader::new(stdout).lines() {
        if let Some(diagnostic) = diagnostic(&line.context("reading cargo's messages")?) {
            eprint!("{}", diagnostic.rendered.as_deref().unwrap_or_default());
            note(&diagnostic, &mut findings);
        }
    }
    if !cargo.wait()?.success() {
        findings.add(CHECK, "workspace", "does not compile");
    }
    Ok(findings)
}

fn diagnostic(line: &str) -> Option<Diagnostic> {
    let message: Message = serde_json::from_str(line).ok()?;
    message
        .message
        .filter(|_| message.reason == "compiler-message")
}

/// A diagnostic without a place is the compiler's own closing count.
fn note(diagnostic: &Diagnostic, findings: &mut Findings) {
    let counts = matches!(diagnostic.level.as_str(), "warning" | "error");
    if let Some(span) = diagnostic
        .spans
        .iter()
        .find(|span| span.is_primary && counts)
    {
        findings.add(
            CHECK,
            format!("{}:{}", span.file_name, span.line_start),
            &diagnostic.message,
        );
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use serde_json::json;

    use super::{diagnostic, note};
    use crate::findings::Findings;

    fn found(level: &str) -> Vec<String> {
        let span = json!({"file_name": "src/a.rs", "line_start": 7, "is_primary": true});
        let message =
            json!({"level": level, "message": "unused", "rendered": "…", "spans": [span]});
        let line = json!({"reason": "compiler-message", "message": message}).to_string();
        let mut findings = Findings::default();
        note(&diagnostic(&line).unwrap(), &mut findings);
        findings.texts()
    }

    #[test]
    fn a_warning_is_a_finding_and_a_note_is_not() {
        assert_eq!(found("warning"), ["src/a.rs:7: unused"]);
        assert_eq!(found("error"), ["src/a.rs:7: unused"]);
        assert_eq!(found("note"), [""; 0]);
    }

    #[test]
    fn other_messages_of_cargo_are_passed_over() {
        assert!(diagnostic(r#"{"reason":"compiler-artifact"}"#).is_none());
        assert!(diagnostic("not json").is_none());
    }
}
