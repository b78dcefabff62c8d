//! A plugin's log: bounded, without secrets, in the caller's hands line by line (M11, E15, P11).

use bulkhead_wire::{isolates, pipe};

use crate::context::SecretRegistry;

pub const LINES_MAX: u32 = 256;
pub const LINE_BYTES_MAX: usize = 32 << 10;
pub const BYTES_MAX: u64 = 256 << 10;

/// One invocation's log.
#[derive(Debug, Default)]
pub struct Logs {
    lines: u32,
    bytes: u64,
    left_out: u32,
}

impl Logs {
    /// The line as the caller gets it; none beyond the limits. The first that is left out is told by a line of its own.
    pub fn line(
        &mut self,
        log: &pipe::Log,
        secrets: &SecretRegistry,
        at_ms: u64,
    ) -> Option<isolates::Log> {
        let text = cut_to_bytes(&secrets.mask(&log.text), LINE_BYTES_MAX).to_owned();
        let bytes = text.len() as u64;
        if self.lines >= LINES_MAX || self.bytes + bytes > BYTES_MAX {
            self.left_out = self.left_out.saturating_add(1);
            return (self.left_out == 1).then(|| isolates::Log {
                level: isolates::log::Level::Warn.into(),
                text: format!(
                    "[truncated: one invocation logs at most {LINES_MAX} lines and {} KiB]",
                    BYTES_MAX >> 10
                ),
                at_ms,
            });
        }
        self.lines += 1;
        self.bytes += bytes;
        Some(isolates::Log {
            level: level(log.level()).into(),
            text,
            at_ms,
        })
    }

    pub fn lines(&self) -> u32 {
        self.lines
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn left_out(&self) -> u32 {
        self.left_out
    }
}

fn level(level: pipe::log::Level) -> isolates::log::Level {
    match level {
        pipe::log::Level::Debug => isolates::log::Level::Debug,
        pipe::log::Level::Warn => isolates::log::Level::Warn,
        pipe::log::Level::Error => isolates::log::Level::Error,
        pipe::log::Level::Info | pipe::log::Level::Unspecified => isolates::log::Level::Info,
    }
}

fn cut_to_bytes(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    fn log(text: &str) -> pipe::Log {
        pipe::Log {
            level: pipe::log::Level::Error.into(),
            text: text.to_owned(),
        }
    }

    /// M11: lines and bytes end, with one line that says so.
    #[test]
    fn m11_a_log_ends_at_its_lines_and_at_its_bytes_and_says_so_once() {
        let secrets = SecretRegistry::default();
        for (text, kept) in [("x", 256), ("é".repeat(4 << 10).as_str(), 32)] {
            let mut logs = Logs::default();
            let got: Vec<_> = (0..1_000)
                .filter_map(|_| logs.line(&log(text), &secrets, 7))
                .collect();
            assert_eq!(got.len(), kept + 1);
            assert!(got[kept].text.starts_with("[truncated"));
            assert_eq!(logs.left_out() as usize, 1_000 - kept);
            assert_eq!(got[0].level(), isolates::log::Level::Error);
            assert_eq!(got[0].at_ms, 7);
        }
        let long = Logs::default()
            .line(&log(&"é".repeat(20 << 10)), &secrets, 0)
            .unwrap();
        assert_eq!(long.text.len(), LINE_BYTES_MAX);
    }

    /// E15: no secret that was given stands in a line.
    #[test]
    fn e15_secrets_are_taken_out_of_lines() {
        let secrets = SecretRegistry::default();
        secrets.add("key", "canary-0123".into()).unwrap();
        let line = Logs::default()
            .line(&log("got canary-0123"), &secrets, 0)
            .unwrap();
        assert_eq!(line.text, "got [masked:key]");
    }
}
