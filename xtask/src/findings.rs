//! What a check found wrong, each with the place and the remedy.

use std::fmt;

/// One thing to mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    check: &'static str,
    place: String,
    what: String,
}

/// Everything that one or several checks found; empty is good.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    pub(crate) fn add(
        &mut self,
        check: &'static str,
        place: impl Into<String>,
        what: impl Into<String>,
    ) {
        self.0.push(Finding {
            check,
            place: place.into(),
            what: what.into(),
        });
    }

    pub(crate) fn extend(&mut self, more: Findings) {
        self.0.extend(more.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|finding| format!("{}: {}", finding.place, finding.what))
            .collect()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.0 {
            writeln!(f, "{}: {}: {}", finding.check, finding.place, finding.what)?;
        }
        match self.0.len() {
            0 => Ok(()),
            1 => writeln!(f, "1 finding"),
            n => writeln!(f, "{n} findings"),
        }
    }
}
