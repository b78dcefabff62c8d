//! The program, started as a person would, in a world of its own.

use std::{
    ffi::OsStr,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// A home, a data directory and a place for temporary files that nobody else uses.
pub(crate) struct World {
    dir: TempDir,
}

/// What one call came to.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Nothing of the test's own environment gets through.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bulkhead"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("TMPDIR", self.path())
            .env("BULKHEAD_DATA_DIR", self.data_dir())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).output().unwrap())
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        Ended::of(child.wait_with_output().unwrap())
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self::of(output)
    }
}

impl Ended {
    fn of(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        let signal = output.status.signal().map(|signal| -signal);
        Self {
            code: output.status.code().or(signal).unwrap(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Fails with everything that was said where the code is another one.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }

    /// Standard output as exactly one JSON object on one line.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let mut lines = self.stdout.lines();
        let first = lines
            .next()
            .unwrap_or_else(|| panic!("nothing on stdout; stderr:\n{}", self.stderr));
        assert_eq!(lines.next(), None, "more than one line on stdout");
        let value: Value = serde_json::from_str(first).unwrap();
        assert!(value.is_object(), "{value}");
        value
    }
}

/// git on a repository of the test's own; its output.
#[track_caller]
pub(crate) fn git(repo: impl AsRef<Path>, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(repo.as_ref())
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
