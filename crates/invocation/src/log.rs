//! What a plugin logs, within limits (M11, M13): what is beyond them is left out, and one line says so.

use std::cell::Cell;

use bulkhead_wire::pipe::{Log, log::Level};

/// Lines of one invocation.
pub(crate) const LINES_MAX: u32 = 256;
/// Bytes of one line; a longer one is cut.
pub(crate) const LINE_BYTES_MAX: usize = 32 << 10;
/// Bytes of all lines together.
pub(crate) const BYTES_MAX: usize = 256 << 10;

const TRUNCATED: &str =
    "truncated: this invocation logged more than 256 lines or 256 KiB, and the rest is left out";

#[derive(Debug, Default)]
pub(crate) struct Logs {
    lines: Cell<u32>,
    bytes: Cell<usize>,
    left_out: Cell<u32>,
}

impl Logs {
    /// What is to be sent of a line: itself, the one line that says that lines are missing, or nothing.
    pub(crate) fn take(&self, level: Level, words: Vec<String>) -> Option<Log> {
        let mut text = words.join(" ");
        if text.len() > LINE_BYTES_MAX {
            const MARK: &str = "… (cut)";
            text.truncate(text.floor_char_boundary(LINE_BYTES_MAX - MARK.len()));
            text.push_str(MARK);
        }
        let (lines, bytes) = (self.lines.get(), self.bytes.get());
        let is_within = self.left_out.get() == 0
            && lines < LINES_MAX
            && bytes.saturating_add(text.len()) <= BYTES_MAX;
        if is_within {
            self.lines.set(lines + 1);
            self.bytes.set(bytes + text.len());
            return Some(line(level, text));
        }
        let before = self.left_out.get();
        self.left_out.set(before.saturating_add(1));
        (before == 0).then(|| line(Level::Warn, TRUNCATED.to_owned()))
    }

    pub(crate) fn left_out(&self) -> u32 {
        self.left_out.get()
    }
}

fn line(level: Level, text: String) -> Log {
    Log {
        level: level.into(),
        text,
    }
}
