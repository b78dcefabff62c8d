//! What a process is started with, on any host.

use std::{collections::BTreeMap, fmt};

/// One process to start.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments. A program without `/` is looked for in `env`'s `PATH`.
    pub argv: Vec<String>,
    /// None is the host's own working directory.
    pub cwd: Option<String>,
    /// The whole environment, besides what the host itself sets for every process (such as `HOME`).
    pub env: BTreeMap<String, String>,
    pub stdio: Stdio,
}

/// Where a process's standard streams lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    Streams {
        stdin: Stream,
        stdout: Stream,
        stderr: Stream,
    },
    /// One terminal for all three.
    Terminal(TerminalSize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Empty when read, discarded when written.
    Null,
    Pipe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

impl Stdio {
    pub const PIPES: Self = Self::Streams {
        stdin: Stream::Pipe,
        stdout: Stream::Pipe,
        stderr: Stream::Pipe,
    };
    /// Nothing to read, so that no program waits for input that never comes (case 22).
    pub const OUTPUT: Self = Self::Streams {
        stdin: Stream::Null,
        stdout: Stream::Pipe,
        stderr: Stream::Pipe,
    };
}

impl Command {
    /// A program with an empty standard input and piped outputs.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: None,
            env: BTreeMap::new(),
            stdio: Stdio::OUTPUT,
        }
    }

    /// A line for `/bin/sh`.
    pub fn shell(line: &str) -> Self {
        Self::new(["/bin/sh", "-c", line])
    }

    #[must_use]
    pub fn cwd(mut self, dir: impl Into<String>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Adds variables; one that is already set keeps the new value.
    #[must_use]
    pub fn envs(mut self, env: impl IntoIterator<Item = (String, String)>) -> Self {
        self.env.extend(env);
        self
    }

    #[must_use]
    pub fn stdio(mut self, stdio: Stdio) -> Self {
        self.stdio = stdio;
        self
    }
}

/// Names of variables only: their values may be secrets.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("stdio", &self.stdio)
            .finish()
    }
}
