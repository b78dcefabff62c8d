//! The lines between the runner and the supervisor, without any input or output.

use std::{fmt, num::NonZeroU64};

use super::Level;
use crate::{Signal, Target};

/// Longer lines are not the supervisor's.
pub(super) const LINE_BYTES: usize = 4096;

/// What the runner asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// The runner lives.
    Beat,
    Signal {
        id: NonZeroU64,
        signal: Signal,
        target: Target,
    },
    /// Shell commands for when the runner is lost; may hold secrets, so never part of an argument.
    OnLoss(String),
    /// The agent has ended, or shall: what is left of it is ended, and the supervisor with it.
    End,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beat => writeln!(f, "beat"),
            Self::Signal { id, signal, target } => {
                let target = match target {
                    Target::Process => "process",
                    Target::Group => "group",
                };
                writeln!(f, "signal {id} {} {target}", name(*signal))
            }
            Self::OnLoss(text) => text
                .lines()
                .try_for_each(|line| writeln!(f, "on-loss {line}")),
            Self::End => writeln!(f, "end"),
        }
    }
}

const fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::Hangup => "HUP",
        Signal::Interrupt => "INT",
        Signal::Quit => "QUIT",
        Signal::User1 => "USR1",
        Signal::User2 => "USR2",
        Signal::Terminate => "TERM",
        Signal::Stop => "STOP",
        Signal::Continue => "CONT",
        Signal::Kill => "KILL",
    }
}

/// What the supervisor says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    Ready(Ready),
    /// The agent runs; how the machine names it.
    Started(String),
    /// There is no such program.
    Missing,
    Refused(String),
    Signalled(NonZeroU64),
    /// It ends the agent, and why.
    Lost(String),
    /// Nothing is left of the agent, unless it says so.
    Ended(Remains),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remains {
    Nothing,
    Something,
}

/// The supervisor stands, and waits for the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ready {
    /// None for a guard, which has no agent.
    pub(super) level: Option<Level>,
    /// The level's words, for a helper that has to end the agent without this supervisor.
    pub(super) words: [String; 3],
    /// Where the start script is.
    pub(super) directory: String,
}

impl Report {
    /// None for what is not the supervisor's: a login shell's start files may print too.
    pub(super) fn parse(token: &str, line: &str) -> Option<Self> {
        let line = line.trim_end_matches(['\r', '\n']);
        let rest = line.strip_prefix(token)?.strip_prefix(' ')?;
        let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(match word {
            "ready" => Self::Ready(Ready::parse(rest)?),
            "started" => Self::Started(rest.to_owned()),
            "missing" => Self::Missing,
            "refused" => Self::Refused(rest.to_owned()),
            "signalled" => Self::Signalled(rest.parse().ok()?),
            "lost" => Self::Lost(rest.to_owned()),
            "ended" if rest == "0" => Self::Ended(Remains::Nothing),
            "ended" => Self::Ended(Remains::Something),
            _ => return None,
        })
    }
}

impl Ready {
    fn parse(rest: &str) -> Option<Self> {
        let mut parts = rest.splitn(4, ' ');
        let words = [parts.next()?, parts.next()?, parts.next()?];
        let level = match (words[0], words[1]) {
            ("cgroup", "2") => Some(Level::ControlGroup),
            ("cgroup", _) => Some(Level::FrozenGroup),
            ("namespace", _) => Some(Level::ProcessNamespace),
            ("tree", "marks") => Some(Level::MarkedTree),
            ("tree", _) => Some(Level::Tree),
            ("group", _) => Some(Level::ProcessGroup),
            ("none", _) => None,
            _ => return None,
        };
        Some(Self {
            level,
            words: words.map(str::to_owned),
            directory: parts.next()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn h14_reports_are_told_from_what_else_is_printed_there() {
        let ready = Report::parse(
            "t0",
            "t0 ready cgroup 2 /sys/fs/cgroup/b /tmp/with blank/x\r\n",
        );
        let Some(Report::Ready(ready)) = ready else {
            panic!("{ready:?}")
        };
        assert_eq!(ready.level, Some(Level::ControlGroup));
        assert_eq!(ready.directory, "/tmp/with blank/x");
        assert_eq!(Report::parse("t0", "welcome ready cgroup 2 - /tmp"), None);
        assert_eq!(Report::parse("t0", "t0 ready"), None);
        let started = Report::parse("t0", "t0 started 12:345");
        assert_eq!(started, Some(Report::Started("12:345".into())));
        let ended = Report::parse("t0", "t0 ended 1");
        assert_eq!(ended, Some(Report::Ended(Remains::Something)));
    }

    #[test]
    fn h14_requests_are_one_line_each_however_many_lines_a_command_has() {
        let text = "docker kill a\ndocker rm a";
        let lines = Request::OnLoss(text.into()).to_string();
        assert_eq!(lines, "on-loss docker kill a\non-loss docker rm a\n");
        let signal = Request::Signal {
            id: NonZeroU64::new(7).unwrap(),
            signal: Signal::Terminate,
            target: Target::Group,
        };
        assert_eq!(signal.to_string(), "signal 7 TERM group\n");
    }
}
