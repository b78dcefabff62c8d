//! What the program says: results on standard output, words about progress and trouble on standard error.
//! With `--json` standard output carries JSON and nothing else.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write as _},
};

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Words,
    Json,
}

/// Where results and words go. Cheap to copy; holds no lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) const fn new(format: Format) -> Self {
        Self { format }
    }

    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// A result for people, a line or more; nothing where programs read.
    pub(crate) fn words(self, words: impl fmt::Display) -> io::Result<()> {
        match self.format {
            Format::Words => writeln!(io::stdout().lock(), "{words}"),
            Format::Json => Ok(()),
        }
    }

    /// One JSON object on one line, for programs; nothing where people read.
    pub(crate) fn json_object(self, value: &impl Serialize) -> io::Result<()> {
        match self.format {
            Format::Words => Ok(()),
            Format::Json => {
                let mut line = serde_json::to_vec(value)?;
                line.push(b'\n');
                let mut stdout = io::stdout().lock();
                stdout.write_all(&line)?;
                stdout.flush()
            }
        }
    }

    /// Rows under headings for people; nothing where programs read.
    pub(crate) fn table<const N: usize>(
        self,
        headings: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> io::Result<()> {
        let mut table = comfy_table::Table::new();
        table
            .load_style(comfy_table::presets::NOTHING)
            .set_header(headings);
        for row in rows {
            table.add_row(row);
        }
        self.words(
            table
                .lines()
                .map(|line| line.trim_end().to_owned())
                .collect::<Vec<_>>()
                .join("\n"),
        )
    }

    /// The beginning of a line that a person goes on with.
    pub(crate) fn note_part(self, words: impl fmt::Display) {
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "{words}");
        let _ = stderr.flush();
    }

    /// Progress and trouble. Whether anybody reads it does not matter to the work.
    pub(crate) fn note(self, words: impl fmt::Display) {
        let _ = writeln!(io::stderr().lock(), "{words}");
    }
}

/// Whether a person sits in front of us and can be asked.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}
