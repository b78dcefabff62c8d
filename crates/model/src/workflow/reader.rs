//! Takes typed values off the tree. A value of the wrong form is noted as a problem and reading goes
//! on, so that whoever writes a workflow sees all of its faults at once.

mod amounts;
mod braces;

use std::{fmt::Write as _, str::FromStr};

use super::{
    Known, WorkflowError,
    error::{Place, Problem, nearest},
    node::{Key, Node, Value, cut},
};
use crate::ids::InvalidId;

/// How many problems of one file are listed.
const PROBLEMS_LISTED: usize = 50;
/// The most entries of any list or mapping in a workflow.
pub(crate) const ENTRIES_MAX: usize = 128;

pub(crate) struct Reader<'a> {
    pub(crate) problems: Vec<Problem>,
    pub(crate) known: &'a Known,
    source: &'a str,
}

/// A node with the path that leads to it.
#[derive(Clone)]
pub(crate) struct Field<'n> {
    pub(crate) node: &'n Node,
    pub(crate) path: String,
}

impl<'n> Field<'n> {
    pub(crate) const fn root(node: &'n Node) -> Self {
        Self {
            node,
            path: String::new(),
        }
    }

    fn child(&self, name: &str, node: &'n Node) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{}", self.path, cut(name));
        Self { node, path }
    }
}

/// The entries of a mapping whose keys are fixed.
pub(crate) struct Fields<'n> {
    of: Field<'n>,
    entries: &'n [(Key, Node)],
}

impl<'n> Fields<'n> {
    pub(crate) fn get(&self, name: &str) -> Option<Field<'n>> {
        let (key, node) = self.entries.iter().find(|(key, _)| key.name == name)?;
        Some(self.of.child(&key.name, node))
    }

    /// The place of the mapping itself, for what is missing in it.
    pub(crate) const fn of(&self) -> &Field<'n> {
        &self.of
    }
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(source: &'a str, known: &'a Known) -> Self {
        Self {
            problems: Vec::new(),
            known,
            source,
        }
    }

    pub(crate) fn finish<T>(mut self, file: &str, read: Option<T>) -> Result<T, WorkflowError> {
        match read {
            Some(read) if self.problems.is_empty() => return Ok(read),
            _ => {}
        }
        self.problems.sort_by_key(|problem| problem.place);
        let more = self.problems.len().saturating_sub(PROBLEMS_LISTED);
        self.problems.truncate(PROBLEMS_LISTED);
        Err(WorkflowError {
            file: file.to_owned(),
            problems: self.problems,
            more,
        })
    }

    pub(crate) fn problem(&mut self, field: &Field<'_>, message: impl Into<String>) {
        let problem = Problem::new(field.node.place, &field.path, message);
        self.problems.push(problem);
    }

    pub(crate) fn expected(&mut self, field: &Field<'_>, what: &str) {
        let found = field.node.found();
        let quote = match &field.node.value {
            Value::Whole(_) | Value::Decimal(_) | Value::Bool(_) if what.contains("text") => {
                " (write it in quotes)"
            }
            _ => "",
        };
        self.problem(field, format!("expected {what}, found {found}{quote}"));
    }

    /// Says that `name` is none of `candidates`, and which one is nearest.
    pub(crate) fn unknown(
        &mut self,
        field: &Field<'_>,
        kind: &str,
        name: &str,
        candidates: &[&str],
    ) {
        let problem = unknown(field.node.place, &field.path, kind, name, candidates);
        self.problems.push(problem);
    }

    /// A mapping with fixed keys: unknown and repeated ones are problems.
    pub(crate) fn fields<'n>(&mut self, field: &Field<'n>, names: &[&str]) -> Option<Fields<'n>> {
        let Value::Map(entries) = &field.node.value else {
            self.expected(field, &format!("a mapping with {}", names.join(", ")));
            return None;
        };
        self.repeated(field, entries);
        for (key, _) in entries.iter().take(ENTRIES_MAX) {
            if !names.contains(&key.name.as_str()) {
                let path = field.child(&key.name, field.node).path;
                let problem = unknown(key.place, &path, "field", &key.name, names);
                self.problems.push(problem);
            }
        }
        Some(Fields {
            of: field.clone(),
            entries,
        })
    }

    /// A mapping whose keys are names of the author's choice.
    pub(crate) fn entries<'n>(&mut self, field: &Field<'n>) -> Vec<(&'n Key, Field<'n>)> {
        let Value::Map(entries) = &field.node.value else {
            self.expected(field, "a mapping");
            return Vec::new();
        };
        self.repeated(field, entries);
        if entries.len() > ENTRIES_MAX {
            let found = entries.len();
            self.problem(
                field,
                format!("expected at most {ENTRIES_MAX} entries, found {found}"),
            );
        }
        let entries = entries.iter().take(ENTRIES_MAX);
        entries
            .map(|(key, node)| (key, field.child(&key.name, node)))
            .collect()
    }

    fn repeated(&mut self, field: &Field<'_>, entries: &[(Key, Node)]) {
        let mut first = std::collections::BTreeMap::new();
        for (key, node) in entries {
            match first.get(key.name.as_str()) {
                Some(Place { line, .. }) => {
                    let path = field.child(&key.name, node).path;
                    let message = format!("the field is written twice, first on line {line}");
                    self.problems.push(Problem::new(key.place, &path, message));
                }
                None => {
                    first.insert(key.name.as_str(), key.place);
                }
            }
        }
    }

    pub(crate) fn required<'n>(&mut self, fields: &Fields<'n>, name: &str) -> Option<Field<'n>> {
        let field = fields.get(name);
        if field.is_none() {
            self.problem(fields.of(), format!("the field `{name}` is missing"));
        }
        field
    }

    pub(crate) fn list<'n>(&mut self, field: &Field<'n>) -> Vec<Field<'n>> {
        let Value::List(nodes) = &field.node.value else {
            self.expected(field, "a list");
            return Vec::new();
        };
        if nodes.len() > ENTRIES_MAX {
            let found = nodes.len();
            self.problem(
                field,
                format!("expected at most {ENTRIES_MAX} entries, found {found}"),
            );
        }
        let nodes = nodes.iter().take(ENTRIES_MAX).enumerate();
        let items = nodes.map(|(index, node)| Field {
            node,
            path: format!("{}[{index}]", field.path),
        });
        items.collect()
    }

    /// Text of any length; empty text is none.
    pub(crate) fn text(&mut self, field: &Field<'_>) -> Option<String> {
        match &field.node.value {
            Value::Text(text) if text.contains('\0') => {
                self.problem(field, "the text holds a NUL character");
                None
            }
            Value::Text(text) if !text.trim().is_empty() => Some(text.clone()),
            Value::Text(_) => {
                self.problem(field, "expected some text, found none");
                None
            }
            _ => {
                self.expected(field, "text");
                None
            }
        }
    }

    /// Text that may be empty, for values rather than names.
    pub(crate) fn value(&mut self, field: &Field<'_>) -> Option<String> {
        match &field.node.value {
            Value::Text(text) if text.is_empty() => Some(String::new()),
            _ => self.text(field),
        }
    }

    /// One line of text of at most 200 bytes.
    pub(crate) fn line(&mut self, field: &Field<'_>) -> Option<String> {
        let text = self.text(field)?;
        if text.len() > 200 || text.chars().any(char::is_control) {
            self.problem(field, "expected one line of at most 200 bytes");
            return None;
        }
        Some(text)
    }

    /// A name that its own type checks.
    pub(crate) fn name<T: FromStr<Err = InvalidId>>(&mut self, field: &Field<'_>) -> Option<T> {
        let text = self.text(field)?;
        match text.parse() {
            Ok(name) => Some(name),
            Err(InvalidId { kind, expected, .. }) => {
                let found = cut(&text);
                self.problem(
                    field,
                    format!("{found:?} is not a {kind}: expected {expected}"),
                );
                None
            }
        }
    }

    /// A list of names, each at most once.
    pub(crate) fn names<T: FromStr<Err = InvalidId> + PartialEq>(
        &mut self,
        field: &Field<'_>,
    ) -> Vec<T> {
        let mut names = Vec::new();
        for item in self.list(field) {
            match self.name::<T>(&item) {
                Some(name) if names.contains(&name) => self.problem(&item, "it is listed twice"),
                Some(name) => names.push(name),
                None => {}
            }
        }
        names
    }

    pub(crate) fn truth(&mut self, field: &Field<'_>) -> Option<bool> {
        match field.node.value {
            Value::Bool(value) => Some(value),
            _ => {
                self.expected(field, "`true` or `false`");
                None
            }
        }
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        field: &Field<'_>,
        kind: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text(field)?;
        let found = choices.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            self.unknown(field, kind, &text, &words);
        }
        found.map(|(_, choice)| *choice)
    }

    /// A name that must be one of those that the operator offers, where they are known.
    pub(crate) fn offered(
        &mut self,
        field: &Field<'_>,
        kind: &str,
        name: &str,
        offered: Option<&[String]>,
    ) {
        let Some(offered) = offered else { return };
        if !offered.iter().any(|known| known == name) {
            let offered: Vec<_> = offered.iter().map(String::as_str).collect();
            self.unknown(field, kind, name, &offered);
        }
    }
}

fn unknown(place: Place, path: &str, kind: &str, name: &str, candidates: &[&str]) -> Problem {
    let mut message = format!("unknown {kind} `{}`", cut(name));
    match candidates {
        [] => message.push_str(": there is none to name here"),
        _ => {
            let _ = write!(message, ": expected one of {}", candidates.join(", "));
        }
    }
    let mut problem = Problem::new(place, path, message);
    problem.nearest = nearest(name, candidates.iter().copied()).map(str::to_owned);
    problem
}
