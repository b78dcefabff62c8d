//! What is wrong with a workflow file, and where.

use std::fmt;

/// A place in the file; both numbers count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: u64,
    pub column: u64,
}

impl Place {
    pub(crate) const START: Self = Self { line: 1, column: 1 };
}

impl From<serde_saphyr::Location> for Place {
    fn from(at: serde_saphyr::Location) -> Self {
        Self {
            line: at.line().max(1),
            column: at.column().max(1),
        }
    }
}

/// One problem. `message` says what was found and what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    /// The path of the field, such as `phases[1].network.allow[0]`; empty for the file as a whole.
    pub field: String,
    pub message: String,
    /// The nearest right name, where there is one.
    pub nearest: Option<String>,
}

impl Problem {
    pub(crate) fn new(place: Place, field: &str, message: impl Into<String>) -> Self {
        Self {
            place,
            field: field.to_owned(),
            message: message.into(),
            nearest: None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, column } = self.place;
        write!(f, "{line}:{column}: ")?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

/// Every problem of one file, in the order of the file. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowError {
    pub file: String,
    pub problems: Vec<Problem>,
    /// Problems beyond those that are listed.
    pub more: usize,
}

impl std::error::Error for WorkflowError {}

impl fmt::Display for WorkflowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{problem}", self.file)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more", self.file),
        }
    }
}

/// The candidate that `name` most likely meant, if one is near enough.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let wanted = plain(name);
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&wanted, &plain(candidate)), candidate))
        .filter(|(likeness, _)| *likeness >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
