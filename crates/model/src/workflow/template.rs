//! Prompts with placeholders: `{{ inputs.NAME }}`, `{{ run.id }}`, `{{ run.branch }}`, `{{ phase.name }}`,
//! `{{ phase.attempt }}` and `{{ comment }}`. `\{{` writes two braces. What a placeholder stands for is
//! put in as it is and never read again, so an input cannot bring a placeholder of its own.
//!
//! Commands are not templates: a value inside a shell command would be code. They find the same values
//! in their environment (`BULKHEAD_INPUT_NAME` and so on).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::nearest;

/// A checked prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Piece {
    Text(String),
    Value(Placeholder),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Placeholder {
    Input(String),
    RunId,
    RunBranch,
    PhaseName,
    PhaseAttempt,
    Comment,
}

/// What placeholders stand for in one attempt.
#[derive(Debug, Clone)]
pub struct Values<'a> {
    pub inputs: &'a BTreeMap<String, String>,
    pub run_id: String,
    /// Empty where the run has no repository.
    pub branch: &'a str,
    pub phase: &'a str,
    pub attempt: u32,
    pub comment: Option<&'a str>,
}

/// A placeholder that means nothing, and where in the text it begins (in bytes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadPlaceholder {
    pub(super) offset: usize,
    pub(super) message: String,
    pub(super) nearest: Option<String>,
}

impl Template {
    /// Reads a prompt; `inputs` are the names that the workflow declares.
    pub(super) fn read(text: &str, inputs: &[&str]) -> Result<Self, Vec<BadPlaceholder>> {
        let mut template = Self { pieces: Vec::new() };
        let (mut bad, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let offset = text.len() - after.len() - 2;
            if let Some(before) = before.strip_suffix('\\') {
                template.push_text(before);
                template.push_text("{{");
                rest = after;
                continue;
            }
            template.push_text(before);
            let Some((inner, after)) = after.split_once("}}") else {
                bad.push(BadPlaceholder {
                    offset,
                    message: "`{{` without `}}`; write `\\{{` for two braces".to_owned(),
                    nearest: None,
                });
                return Err(bad);
            };
            match Placeholder::read(inner.trim(), inputs) {
                Ok(value) => template.pieces.push(Piece::Value(value)),
                Err((message, nearest)) => bad.push(BadPlaceholder {
                    offset,
                    message,
                    nearest,
                }),
            }
            rest = after;
        }
        template.push_text(rest);
        if bad.is_empty() {
            return Ok(template);
        }
        Err(bad)
    }

    fn push_text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    /// The prompt of one attempt. Where the phase was sent back and the prompt has no place for the
    /// comment, the comment is put at its end: what a person asked for is never lost.
    pub fn render(&self, values: &Values<'_>) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Value(placeholder) => text.push_str(&placeholder.value(values)),
            }
        }
        let comment = Piece::Value(Placeholder::Comment);
        match values.comment {
            Some(words) if !self.pieces.contains(&comment) => {
                let end = text.trim_end().len();
                text.truncate(end);
                text.push_str("\n\nYour earlier work was sent back with this comment:\n\n");
                text.push_str(words);
                text.push('\n');
            }
            _ => {}
        }
        text
    }
}

impl Placeholder {
    const FIXED: [(&'static str, Self); 5] = [
        ("run.id", Self::RunId),
        ("run.branch", Self::RunBranch),
        ("phase.name", Self::PhaseName),
        ("phase.attempt", Self::PhaseAttempt),
        ("comment", Self::Comment),
    ];

    fn read(name: &str, inputs: &[&str]) -> Result<Self, (String, Option<String>)> {
        if let Some((_, fixed)) = Self::FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return Ok(fixed.clone());
        }
        let input = name.strip_prefix("inputs.").unwrap_or_default();
        if inputs.contains(&input) {
            return Ok(Self::Input(input.to_owned()));
        }
        let fixed = Self::FIXED.iter().map(|(fixed, _)| (*fixed).to_owned());
        let declared = inputs.iter().map(|input| format!("inputs.{input}"));
        let known: Vec<_> = fixed.chain(declared).collect();
        let near = nearest(name, known.iter().map(String::as_str));
        let name: String = name.chars().take(60).collect();
        let expected = match known.as_slice() {
            [] => String::new(),
            known => format!("expected one of {}", known.join(", ")),
        };
        let message = format!("unknown placeholder `{{{{ {name} }}}}`: {expected}");
        Err((message, near.map(str::to_owned)))
    }

    fn value(&self, values: &Values<'_>) -> String {
        match self {
            Self::Input(name) => values.inputs.get(name).cloned().unwrap_or_default(),
            Self::RunId => values.run_id.clone(),
            Self::RunBranch => values.branch.to_owned(),
            Self::PhaseName => values.phase.to_owned(),
            Self::PhaseAttempt => values.attempt.to_string(),
            Self::Comment => values.comment.unwrap_or_default().to_owned(),
        }
    }
}

/// The first placeholder in a command, which would not be replaced there.
pub(super) fn in_command(command: &str) -> Option<(usize, &str)> {
    let mut at = 0;
    while let Some(found) = command[at..].find("{{") {
        let open = at + found;
        let inner = &command[open + 2..];
        let name = inner.split("}}").next().unwrap_or_default().trim();
        let fixed = Placeholder::FIXED.iter().any(|(fixed, _)| *fixed == name);
        if fixed || name.starts_with("inputs.") {
            return Some((open, name));
        }
        at = open + 2;
    }
    None
}
