//! What the crate `sandbox` starts, behind walls or without any, as a host's process.

use std::{ffi::OsString, io, sync::Arc};

use async_trait::async_trait;
use bulkhead_sandbox as sandbox;

use crate::{
    Command, ExitStatus, HostError, Process, ProcessControl, Signal, Stdio, Stream, Target,
    TerminalSize,
    process::{Reader, Writer},
};

/// What is asked for, on top of what the host sets for every process.
pub(crate) fn spec(mut spec: sandbox::ProcessSpec, command: Command) -> sandbox::ProcessSpec {
    spec.argv = command.argv.into_iter().map(Into::into).collect();
    if let Some(cwd) = command.cwd {
        spec = spec.cwd(cwd);
    }
    for (name, value) in command.env {
        spec = spec.env(name, value);
    }
    spec.stdio(match command.stdio {
        Stdio::Streams {
            stdin,
            stdout,
            stderr,
        } => sandbox::Stdio::Streams {
            stdin: stream(stdin),
            stdout: stream(stdout),
            stderr: stream(stderr),
        },
        Stdio::Terminal(size) => sandbox::Stdio::Terminal(terminal_size(size)),
    })
}

const fn stream(stream: Stream) -> sandbox::Stream {
    match stream {
        Stream::Null => sandbox::Stream::Null,
        Stream::Pipe => sandbox::Stream::Pipe,
    }
}

const fn terminal_size(size: TerminalSize) -> sandbox::TerminalSize {
    sandbox::TerminalSize {
        rows: size.rows,
        columns: size.columns,
    }
}

/// A process with its streams.
pub(crate) fn process(host: &'static str, mut process: sandbox::Process) -> Process {
    let (mut stdin, mut stdout): (Option<Writer>, Option<Reader>) = (None, None);
    if let Some(input) = process.stdin.take() {
        stdin = Some(Box::new(input));
    }
    if let Some(output) = process.stdout.take() {
        stdout = Some(Box::new(output));
    }
    if let Some(terminal) = process.terminal.take() {
        let (reader, writer) = tokio::io::split(terminal);
        stdin = Some(Box::new(writer));
        stdout = Some(Box::new(reader));
    }
    let stderr = process
        .stderr
        .take()
        .map(|output| Box::new(output) as Reader);
    Process {
        stdin,
        stdout,
        stderr,
        control: Arc::new(Control { host, process }),
    }
}

struct Control {
    host: &'static str,
    process: sandbox::Process,
}

#[async_trait]
impl ProcessControl for Control {
    async fn wait(&self) -> ExitStatus {
        match self.process.wait().await {
            sandbox::ExitStatus::Code(code) => ExitStatus::Code(code),
            sandbox::ExitStatus::Signal(signal) => ExitStatus::Signal(signal),
            sandbox::ExitStatus::SandboxEnded => ExitStatus::HostEnded,
        }
    }

    async fn signal(&self, signal: Signal, target: Target) -> Result<(), HostError> {
        use rustix::process::Signal as Number;
        let number = match signal {
            Signal::Hangup => Number::HUP,
            Signal::Interrupt => Number::INT,
            Signal::Quit => Number::QUIT,
            Signal::User1 => Number::USR1,
            Signal::User2 => Number::USR2,
            Signal::Stop => Number::STOP,
            Signal::Continue => Number::CONT,
            Signal::Terminate => Number::TERM,
            Signal::Kill => Number::KILL,
        };
        let target = match target {
            Target::Process => sandbox::Target::Process,
            Target::Group => sandbox::Target::Group,
        };
        let sent = self.process.signal(number.as_raw(), target).await;
        sent.map_err(|error| process_error(self.host, error))
    }

    async fn resize(&self, size: TerminalSize) -> Result<(), HostError> {
        let told = self.process.resize(terminal_size(size)).await;
        told.map_err(|error| process_error(self.host, error))
    }
}

pub(crate) fn spawn_error(
    host: &'static str,
    program: String,
    error: sandbox::SpawnError,
) -> HostError {
    let host = host.to_owned();
    let source: NotStarted = match error {
        sandbox::SpawnError::NotFound(_) => return HostError::NotFound { host, program },
        sandbox::SpawnError::SandboxEnded => return HostError::Gone { host },
        sandbox::SpawnError::NotExecutable { source, .. } => NotStarted::NotExecutable(source),
        sandbox::SpawnError::WorkingDirectory { dir, source } => {
            NotStarted::WorkingDirectory { dir, source }
        }
        sandbox::SpawnError::NoRoom(source) => NotStarted::NoRoom(source),
        sandbox::SpawnError::Spec(words) => NotStarted::Description(words),
        sandbox::SpawnError::Io(source) => NotStarted::Streams(source),
    };
    HostError::Spawn {
        host,
        program,
        source: Arc::new(source),
    }
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
enum NotStarted {
    #[error("it cannot be executed")]
    NotExecutable(#[source] io::Error),
    #[error("entering the working directory {dir:?}")]
    WorkingDirectory {
        dir: OsString,
        #[source]
        source: io::Error,
    },
    #[error("making another process")]
    NoRoom(#[source] io::Error),
    #[error("its description is not possible: {0}")]
    Description(String),
    #[error("connecting its streams")]
    Streams(#[source] io::Error),
}

fn process_error(host: &'static str, error: sandbox::ProcessError) -> HostError {
    let host = host.to_owned();
    match error {
        sandbox::ProcessError::SandboxEnded => HostError::Gone { host },
        other => HostError::Process {
            host,
            source: Arc::new(other),
        },
    }
}
