//! How runs, diffs and logs look on standard output.

use std::io::{self, IsTerminal as _};

use anyhow::Result;
use bulkhead_server::{DiffView, GateWhyView, LogLine, RunView};

use crate::{
    failure::Exit,
    output::Output,
    plain::{self, Plain},
    words::{moment, phase_status, run_id, short, span, standing},
};

pub(super) fn list(runs: &[RunView], output: Output) -> Result<()> {
    if runs.is_empty() {
        output.words("No runs yet.")?;
        return Ok(());
    }
    let rows = runs.iter().map(|run| {
        [
            run_id(&run.id).to_owned(),
            plain::line(&run.name),
            standing(run),
            moment(run.created_at_ms),
        ]
    });
    output.table(["RUN", "WORKFLOW", "STATUS", "BEGAN"], rows)?;
    Ok(())
}

pub(super) fn run(run: &RunView, output: Output) -> Result<Exit> {
    output.words(format_args!(
        "Run {} ({}): {}",
        run.id,
        plain::line(&run.name),
        standing(run)
    ))?;
    for (what, value) in [
        ("repository", &run.repo),
        ("base", &run.base),
        ("branch", &run.branch),
        ("reason", &run.reason),
    ] {
        if let Some(value) = value {
            output.words(format_args!("  {what:<11}{}", plain::line(value)))?;
        }
    }
    output.words(format_args!(
        "  {:<11}{}",
        "began",
        moment(run.created_at_ms)
    ))?;
    let rows = run.phases.iter().map(|phase| {
        let commit = phase.commit.as_deref().map(short).unwrap_or_default();
        [
            phase.name.clone(),
            phase_status(phase.status).to_owned(),
            phase.attempt.to_string(),
            commit.to_owned(),
            span(phase.spent.time_ms),
        ]
    });
    output.table(["PHASE", "STATUS", "ATTEMPT", "COMMIT", "TIME"], rows)?;
    if let Some(GateWhyView::Parked { failure }) = run.gate.as_ref().map(|gate| &gate.why) {
        output.words(format_args!("It did not succeed: {}", plain::line(failure)))?;
    }
    output.json_object(run)?;
    Ok(Exit::Done)
}

pub(super) fn diff(diff: &DiffView, output: Output) -> Result<()> {
    output.json_object(diff)?;
    if !diff.runs_later.is_empty() {
        output.note("These would run something on your machine, or for you, later:");
        for path in &diff.runs_later {
            output.note(format_args!("  ⚠ {}", plain::line(path)));
        }
    }
    output.words(for_reader(&diff.patch).trim_end())?;
    if diff.truncated {
        output.note("The patch is longer than what is kept here; the branch has all of it.");
    }
    Ok(())
}

/// A terminal gets harmless text; a file or a program gets the bytes as they are.
fn for_reader(text: &str) -> String {
    if io::stdout().is_terminal() {
        plain::text(text)
    } else {
        text.to_owned()
    }
}

/// Writes log lines; for people as running text, for programs one object a line.
pub(super) struct LogWriter {
    output: Output,
    plain: Plain,
}

impl LogWriter {
    pub(super) fn new(output: Output) -> Self {
        Self {
            output,
            plain: Plain::default(),
        }
    }

    pub(super) fn line(&mut self, line: &LogLine) -> Result<()> {
        self.output.json_object(line)?;
        for text in self.plain.push(&line.text) {
            self.output.words(text)?;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        if let Some(rest) = self.plain.finish() {
            self.output.words(rest)?;
        }
        Ok(())
    }
}
