//! What a process in a sandbox is started with.

use std::{ffi::OsString, fmt, os::fd::OwnedFd, path::PathBuf};

/// One process. Nothing is inherited: its environment is exactly `env`.
pub struct ProcessSpec {
    /// The program and its arguments. A program without `/` is looked for in `env`'s `PATH`, else [`crate::DEFAULT_PATH`].
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    pub env: Vec<(OsString, OsString)>,
    pub stdio: Stdio,
}

impl ProcessSpec {
    /// In the workspace, with an environment of `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `LANG`, `TMPDIR` only, an
    /// empty standard input and piped outputs.
    pub fn new<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Self {
        let base = [
            ("PATH", crate::DEFAULT_PATH),
            ("HOME", crate::HOME_DIR),
            ("USER", crate::AGENT_NAME),
            ("LOGNAME", crate::AGENT_NAME),
            ("SHELL", "/bin/sh"),
            ("LANG", "C.UTF-8"),
            ("TMPDIR", "/tmp"),
        ];
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: PathBuf::from(crate::WORKSPACE_DIR),
            env: base.map(|(k, v)| (k.into(), v.into())).into(),
            stdio: Stdio::Streams {
                stdin: Stream::Null,
                stdout: Stream::Pipe,
                stderr: Stream::Pipe,
            },
        }
    }

    /// Sets or replaces one variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let name = name.into();
        self.env.retain(|(known, _)| *known != name);
        self.env.push((name, value.into()));
        self
    }

    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = dir.into();
        self
    }

    #[must_use]
    pub fn stdio(mut self, stdio: Stdio) -> Self {
        self.stdio = stdio;
        self
    }
}

/// Names of variables only: their values may be secrets.
impl fmt::Debug for ProcessSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("ProcessSpec")
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env", &names)
            .field("stdio", &self.stdio)
            .finish()
    }
}

#[derive(Debug)]
pub enum Stdio {
    Streams {
        stdin: Stream,
        stdout: Stream,
        stderr: Stream,
    },
    /// A terminal of the sandbox's own, which is all three streams and the process's controlling terminal.
    Terminal(TerminalSize),
}

impl Stdio {
    /// Pipes for all three, as an agent that speaks over its input needs.
    pub const PIPES: Self = Self::Streams {
        stdin: Stream::Pipe,
        stdout: Stream::Pipe,
        stderr: Stream::Pipe,
    };
}

#[derive(Debug)]
pub enum Stream {
    /// `/dev/null`: reads give end of file at once (case 22).
    Null,
    Pipe,
    /// The caller's own open file. It becomes the sandbox's: pass nothing that gives access to more than its bytes.
    Fd(OwnedFd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self {
            rows: 24,
            columns: 80,
        }
    }
}
