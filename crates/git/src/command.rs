//! The host's own git: one place that builds every command, with every guard, and bounds what it may do.
//!
//! A [`Git`] always has a `GIT_DIR` that was named explicitly, an empty environment, no system or user
//! configuration, no hooks, no file-system monitor, no transport unless one is named, and no prompt. It runs in a
//! process group of its own, which is killed when its time is over or its owner stops waiting.

use std::{
    ffi::{OsStr, OsString},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
};

use crate::error::{Error, Result};

/// Where programs are looked for by git itself. Fixed: the caller's PATH never counts.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How much of standard error is kept: its end, where git says why.
const STDERR_TAIL: usize = 4 << 10;
/// Output of one command that is read into memory as a whole.
const OUTPUT_BYTES: u64 = 64 << 20;
const TIME: Duration = Duration::from_secs(120);
/// Private memory of one command and each of its children: objects may unpack to far more than they were sent as.
const MEMORY_BYTES: u64 = 4 << 30;

/// Guards that every command carries. Each switches off one way in which git runs a program or reads a file that
/// somebody else chose.
const GUARDS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    // Receive-pack and fetch run this to list refs of alternates; `:` lists none.
    "core.alternateRefsCommand=:",
    "core.sshCommand=false",
    "core.askPass=",
    "credential.helper=",
    "diff.ignoreSubmodules=all",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=no",
    "gc.auto=0",
    "maintenance.auto=false",
    "receive.autogc=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "http.followRedirects=false",
    "protocol.allow=never",
    // Larger blobs are streamed instead of held in memory.
    "core.bigFileThreshold=16m",
    "pack.windowMemory=64m",
    "pack.threads=2",
    "core.deltaBaseCacheLimit=32m",
];

/// The git program of this machine.
#[derive(Debug, Clone)]
pub struct GitProgram {
    path: Arc<Path>,
}

impl Default for GitProgram {
    /// `git`, looked up in the system's directories.
    fn default() -> Self {
        Self {
            path: Path::new("git").into(),
        }
    }
}

impl GitProgram {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into().into(),
        }
    }

    /// The version's first two numbers; landing needs at least 2.38.
    pub async fn version(&self) -> Result<(u32, u32)> {
        let out = Git::new(self, Path::new("/nonexistent"))
            .args(["version"])
            .output()
            .await?;
        let text = String::from_utf8_lossy(&out);
        let mut numbers = text
            .trim()
            .trim_start_matches("git version ")
            .split('.')
            .map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
            _ => Err(Error::Answer {
                command: "version".to_owned(),
                what: text.into_owned(),
            }),
        }
    }
}

/// The user and group that a command runs as, where they are not our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// How a command that may fail ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    command: String,
}

impl Ended {
    /// The exit code; none where a signal ended the command.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(crate) fn success(self) -> Result<Vec<u8>> {
        if self.status.success() {
            Ok(self.stdout)
        } else {
            Err(self.failure())
        }
    }

    pub(crate) fn failure(self) -> Error {
        Error::Failed {
            command: self.command,
            status: describe(self.status),
            stderr: self.stderr.trim().to_owned(),
        }
    }
}

/// One git command, not yet started.
pub(crate) struct Git {
    command: Command,
    shown: Vec<String>,
    stdin: Option<Vec<u8>>,
    input: Option<std::fs::File>,
    time: Duration,
    output_bytes: u64,
}

impl Git {
    /// A command on the repository at `git_dir`. Guards come first, so nothing can be put before them.
    pub(crate) fn new(program: &GitProgram, git_dir: &Path) -> Self {
        let mut command = Command::new(&*program.path);
        command
            .env_clear()
            .env("PATH", PATH)
            .env("LC_ALL", "C")
            .env("HOME", "/nonexistent")
            .env("GIT_DIR", git_dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .current_dir("/")
            .process_group(0)
            .kill_on_drop(true);
        for guard in GUARDS {
            command.arg("-c").arg(guard);
        }
        Self {
            command,
            shown: Vec::new(),
            stdin: None,
            input: None,
            time: TIME,
            output_bytes: OUTPUT_BYTES,
        }
    }

    /// Overrides one guard, for the one command that needs it.
    pub(crate) fn config(mut self, pair: &str) -> Self {
        self.command.arg("-c").arg(pair);
        self
    }

    pub(crate) fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        for arg in args {
            self.shown.push(arg.as_ref().to_string_lossy().into_owned());
            self.command.arg(arg);
        }
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl Into<OsString>) -> Self {
        self.command.env(key, value.into());
        self
    }

    /// Runs as another user, with that user's groups only. Only root can.
    pub(crate) fn identity(mut self, identity: Option<Identity>) -> Self {
        if let Some(identity) = identity {
            self.command.uid(identity.uid).gid(identity.gid);
        }
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Standard input from a file, which may be larger than memory.
    pub(crate) fn input(mut self, file: std::fs::File) -> Self {
        self.input = Some(file);
        self
    }

    pub(crate) fn maybe_input(mut self, file: Option<std::fs::File>) -> Self {
        self.input = file;
        self
    }

    pub(crate) fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    pub(crate) fn output_bytes(mut self, limit: u64) -> Self {
        self.output_bytes = limit;
        self
    }

    /// Standard output of a command that must succeed.
    pub(crate) async fn output(self) -> Result<Vec<u8>> {
        self.run().await?.success()
    }

    /// Runs to the end, within its time and size.
    pub(crate) async fn run(self) -> Result<Ended> {
        let limit = self.output_bytes;
        let (ended, truncated) = self.collect().await?;
        if truncated {
            return Err(Error::TooLarge {
                command: ended.command,
                limit_bytes: limit,
            });
        }
        Ok(ended)
    }

    /// Runs, keeps the first bytes of the output, and says whether there was more (the rest is drained and lost).
    pub(crate) async fn truncated_output(self) -> Result<(Vec<u8>, bool)> {
        let (ended, truncated) = self.collect().await?;
        if truncated {
            Ok((ended.stdout, true))
        } else {
            Ok((ended.success()?, false))
        }
    }

    async fn collect(mut self) -> Result<(Ended, bool)> {
        let (time, limit, stdin) = (self.time, self.output_bytes, self.stdin.take());
        let mut running = self.spawn_with(stdin.is_some())?;
        let command = running.command.clone();
        let work = async {
            let (output, input, errors) = (
                running.child.stdout.take(),
                running.child.stdin.take(),
                running.child.stderr.take(),
            );
            let group = running.group;
            let bounded = async {
                let (stdout, truncated) = read_up_to(output, limit).await;
                if truncated {
                    kill(group);
                }
                (stdout, truncated)
            };
            let ((stdout, truncated), stderr, ()) = tokio::join!(
                bounded,
                read_tail(errors),
                write_all(input, stdin.unwrap_or_default()),
            );
            let status = running.child.wait().await;
            (status, stdout, truncated, stderr)
        };
        let (status, stdout, truncated, stderr) =
            tokio::time::timeout(time, work)
                .await
                .map_err(|_| Error::Timeout {
                    command: command.clone(),
                    after: time,
                })?;
        let status = status.map_err(Error::io(format!("wait for `git {command}`")))?;
        Ok((
            Ended {
                status,
                stdout,
                stderr,
                command,
            },
            truncated,
        ))
    }

    /// Starts the command with all three streams as pipes, for a caller that streams.
    pub(crate) fn spawn(self) -> Result<Running> {
        self.spawn_with(true)
    }

    fn spawn_with(mut self, pipe: bool) -> Result<Running> {
        let stdin = match self.input.take() {
            Some(file) => Stdio::from(file),
            None if pipe => Stdio::piped(),
            None => Stdio::null(),
        };
        self.command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let command = self.shown.join(" ");
        let child = self
            .command
            .spawn()
            .map_err(Error::io(format!("start `git {command}`")))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(pid) = group {
            let limit = Rlimit {
                current: Some(MEMORY_BYTES),
                maximum: Some(MEMORY_BYTES),
            };
            // A command that is over already needs no limit.
            let _ = prlimit(Some(pid), Resource::Data, limit);
        }
        Ok(Running {
            child,
            group,
            command,
        })
    }
}

/// A git command that runs. Dropping it kills its whole process group.
pub(crate) struct Running {
    pub(crate) child: Child,
    group: Option<Pid>,
    command: String,
}

impl Running {
    /// Waits for the end; an exit other than 0 is an error with the end of its standard error.
    pub(crate) async fn finish(mut self, time: Duration) -> Result<Vec<u8>> {
        self.child.stdin.take();
        let command = self.command.clone();
        let work = async {
            let (output, errors) = (self.child.stdout.take(), self.child.stderr.take());
            let ((stdout, _), stderr) =
                tokio::join!(read_up_to(output, 1 << 20), read_tail(errors));
            (self.child.wait().await, stdout, stderr)
        };
        let (status, stdout, stderr) =
            tokio::time::timeout(time, work)
                .await
                .map_err(|_| Error::Timeout {
                    command: command.clone(),
                    after: time,
                })?;
        let status = status.map_err(Error::io(format!("wait for `git {command}`")))?;
        Ended {
            status,
            stdout,
            stderr,
            command,
        }
        .success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Once the child was reaped its number may belong to another; `id` is None then.
        if self.child.id().is_some() {
            kill(self.group);
        }
    }
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // The group may be gone already, which is what was wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

async fn write_all(input: Option<tokio::process::ChildStdin>, bytes: Vec<u8>) {
    if let Some(mut input) = input {
        // A command that stops reading says why in its status; a broken pipe here adds nothing.
        let _ = input.write_all(&bytes).await;
    }
}

async fn read_up_to(from: Option<impl AsyncRead + Unpin>, limit: u64) -> (Vec<u8>, bool) {
    let mut kept = Vec::new();
    let Some(mut from) = from else {
        return (kept, false);
    };
    let read = (&mut from).take(limit).read_to_end(&mut kept).await;
    let full = read.is_ok() && kept.len() as u64 == limit;
    let more = full && matches!(from.read(&mut [0; 1]).await, Ok(1));
    (kept, more)
}

async fn read_tail(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut tail: Vec<u8> = Vec::new();
    let Some(mut from) = from else {
        return String::new();
    };
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        tail.extend_from_slice(&chunk[..count]);
        let surplus = tail.len().saturating_sub(STDERR_TAIL);
        tail.drain(..surplus);
    }
    String::from_utf8_lossy(&tail).into_owned()
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
    use std::{fs, os::unix::fs::PermissionsExt as _, time::Instant};

    use super::*;

    /// A program in git's place.
    fn program(dir: &Path, text: &str) -> GitProgram {
        let path = dir.join("git");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        GitProgram::at(path)
    }

    #[tokio::test]
    async fn a_command_and_its_children_end_when_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("sleep 300 & echo $! >{0}/child; wait", dir.path().display());
        let git = Git::new(&program(dir.path(), &text), dir.path()).args(["status"]);
        let begun = Instant::now();
        let error = git.time(Duration::from_secs(2)).output().await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60));
        let child = fs::read_to_string(dir.path().join("child")).unwrap();
        let gone = || {
            let state =
                fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        };
        while !gone() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "a child of the command lives on"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn output_beyond_the_limit_ends_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let endless = program(dir.path(), "exec yes");
        let git = || {
            Git::new(&endless, dir.path())
                .args(["log"])
                .output_bytes(1000)
        };
        assert!(matches!(
            git().output().await.unwrap_err(),
            Error::TooLarge { .. }
        ));
        let (kept, cut) = git().truncated_output().await.unwrap();
        assert_eq!((kept.len(), cut), (1000, true));
    }

    #[tokio::test]
    async fn nothing_of_the_callers_environment_reaches_git_and_memory_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let shows = program(
            dir.path(),
            "env; sleep 1; grep 'data size' /proc/self/limits; echo why >&2; exit 3",
        );
        let ended = Git::new(&shows, dir.path())
            .args(["x"])
            .run()
            .await
            .unwrap();
        let text = String::from_utf8(ended.stdout.clone()).unwrap();
        for line in text.lines() {
            let known = [
                "PATH=",
                "LC_ALL=",
                "HOME=/nonexistent",
                "GIT_",
                "PWD=",
                "_=",
                "Max data size",
                "OLDPWD",
                "SHLVL",
            ];
            assert!(known.iter().any(|known| line.starts_with(known)), "{line}");
        }
        assert!(text.contains(&MEMORY_BYTES.to_string()), "{text}");
        assert_eq!(ended.failure().to_string(), "`git x` failed (exit 3): why");
    }
}
