//! Agents that end badly, and starting many of them over one connection.

use std::{path::Path, sync::Arc};

use bulkhead_host::{
    Command, Process, Stdio, TerminalSize,
    supervisor::{Level, Options, Supervisor, Way},
};

use super::{
    machine::WORD,
    ssh::{Connection, SshClient},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Silent,
    Writes,
    IgnoresTerm,
    Setsid,
    DoubleFork,
    /// All of these together, one that is stopped, and one more double fork with an empty environment where the level can see it.
    Family,
}

pub(super) const KINDS: [Kind; 5] = [
    Kind::Silent,
    Kind::Writes,
    Kind::IgnoresTerm,
    Kind::Setsid,
    Kind::DoubleFork,
];

const STUBBORN: &str = "trap '' TERM HUP INT PIPE; while :; do sleep 1; done";
const WRITER: &str = "trap '' HUP PIPE; while :; do echo still here; sleep 0.2; done";

/// One agent: what it does, how it is started, and by which level it is to be ended.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) kind: Kind,
    pub(super) terminal: Terminal,
    pub(super) way: Way,
    /// Every process of it carries this in its environment or its arguments.
    pub(super) word: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Terminal {
    No,
    Yes,
}

/// A supervisor with the agents that it has started.
pub(super) struct Started {
    supervisors: Vec<Supervisor>,
    _processes: Vec<Process>,
    pub(super) levels: Vec<Level>,
}

impl Started {
    pub(super) async fn teardown(self) {
        for supervisor in &self.supervisors {
            supervisor.teardown().await.unwrap();
        }
    }
}

impl Kind {
    fn script(self, way: Way) -> String {
        let quoted = |script: &str| format!("\"{}\"", script.replace('"', "\\\""));
        let setsid = format!("setsid sh -c {} x \"$0\" &", quoted(STUBBORN));
        let twice = format!(
            "(setsid sh -c {} x \"$0\" &) ; ",
            quoted(&format!("({STUBBORN}) & exit"))
        );
        match self {
            Self::Silent => "exec sleep 1000".to_owned(),
            Self::Writes => WRITER.to_owned(),
            Self::IgnoresTerm => STUBBORN.to_owned(),
            Self::Setsid => format!("{setsid} sleep 1000"),
            Self::DoubleFork => format!("{twice} sleep 1000"),
            Self::Family => {
                let cleared = format!(
                    "(env -i PATH=\"$PATH\" setsid sh -c {} \"$0\" &) ; ",
                    quoted(STUBBORN)
                );
                let cleared = if way == Way::ProcessTree {
                    ""
                } else {
                    &cleared
                };
                let writer = format!("sh -c {} x &", quoted(WRITER));
                let stopped = "sh -c 'kill -STOP $$' &";
                format!("{setsid} {twice} {cleared} {writer} {stopped} sleep 1000")
            }
        }
    }

    /// How many processes it has when it is complete, besides those that come and go.
    pub(super) const fn processes(self, way: Way) -> usize {
        match (self, way) {
            (Self::Silent | Self::Writes | Self::IgnoresTerm, _) => 1,
            (Self::Setsid | Self::DoubleFork, _) => 3,
            (Self::Family, Way::ProcessTree) => 6,
            (Self::Family, _) => 7,
        }
    }
}

impl Cell {
    pub(super) fn new(kind: Kind, terminal: Terminal, way: Way) -> Self {
        let word = format!("{WORD}{}", uuid::Uuid::now_v7().simple());
        Self {
            kind,
            terminal,
            way,
            word,
        }
    }

    fn command(&self) -> Command {
        let script = self.kind.script(self.way);
        let command = Command::new(["/bin/sh", "-c", &script, &self.word]).env("CELL", &self.word);
        match self.terminal {
            Terminal::No => command.stdio(Stdio::PIPES),
            Terminal::Yes => command.stdio(Stdio::Terminal(TerminalSize {
                rows: 24,
                columns: 80,
            })),
        }
    }

    /// One line, for a runner of its own process.
    pub(super) fn to_line(&self) -> String {
        format!(
            "{:?} {:?} {:?} {}",
            self.kind, self.terminal, self.way, self.word
        )
    }

    pub(super) fn from_line(line: &str) -> Self {
        let mut parts = line.split(' ');
        let mut next = || parts.next().unwrap();
        let (kind, terminal, way) = (next(), next(), next());
        let kinds = KINDS.into_iter().chain([Kind::Family]);
        Self {
            kind: kinds
                .into_iter()
                .find(|one| format!("{one:?}") == kind)
                .unwrap(),
            terminal: if terminal == "Yes" {
                Terminal::Yes
            } else {
                Terminal::No
            },
            way: Way::ALL
                .into_iter()
                .find(|one| format!("{one:?}") == way)
                .unwrap(),
            word: next().to_owned(),
        }
    }
}

/// Starts the cells over one connection, those of each level after one another and the levels side by side.
pub(super) async fn start(
    connection: &Connection,
    tmp: &Path,
    options: &Options,
    cells: &[Cell],
) -> Started {
    let tmp = tmp.display().to_string();
    let host = SshClient::new(connection.clone(), &[("TMPDIR", &tmp)]);
    let starting = Way::ALL.map(|way| {
        let options = Options {
            ways: vec![way],
            ..options.clone()
        };
        let supervisor = Supervisor::new(Arc::clone(&host) as _, options);
        async move {
            let mut started = Vec::new();
            for (at, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.way == way) {
                let (process, level) = supervisor.start(cell.command()).await.unwrap();
                started.push((at, process, level));
            }
            (supervisor, started)
        }
    });
    let (mut supervisors, mut all) = (Vec::new(), Vec::new());
    for (supervisor, started) in futures::future::join_all(starting).await {
        supervisors.push(supervisor);
        all.extend(started);
    }
    all.sort_by_key(|(at, ..)| *at);
    let (processes, levels) = all
        .into_iter()
        .map(|(_, process, level)| (process, level))
        .unzip();
    Started {
        supervisors,
        _processes: processes,
        levels,
    }
}
