//! `bulkhead sandbox exec`: the sandbox alone.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use bulkhead_sandbox::{
    Bind, Cause, EndReason, Engine, EngineConfig, ExitStatus, Limits, Outcome, Plan, Process,
    ProcessSpec, Sandbox, SandboxId, Stdio, Stream, Workspace,
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    data_dir,
    network::Network,
    sandbox_dir,
    terminal::{self, RawMode},
};
use crate::{
    cli::{self, Exec, Global},
    config::OperatorConfig,
    environment,
    failure::{Exit, Misuse},
    interrupt::Interrupt,
    output::Output,
};

pub(crate) async fn run(args: Exec, global: &Global, output: Output) -> Result<Exit> {
    refuse_what_is_not_there(&args)?;
    let operator = OperatorConfig::load(global)?;
    let network = Network::read(&args.allow, &operator)?;
    let engine = Engine::open(engine_config(global, &operator)?).await?;
    let mut spec = spec(&args, output)?;
    let mut plan = plan(&args)?;
    if network.is_some() {
        plan.listeners = Network::listeners();
        spec = Network::announce(spec);
    }
    let sandbox = engine.create(plan).await?;
    let door = network
        .map(|network| network.open(&sandbox, output))
        .transpose()?;
    let interrupt = Interrupt::listen(output)?;
    let ran = drive(&sandbox, spec, output, &interrupt.token()).await;
    let (status, cause) = match &ran {
        Ok(Ended::ByItself(status)) => (*status, Cause::Finished(*status)),
        Ok(Ended::Cancelled) | Err(_) => (ExitStatus::SandboxEnded, Cause::Cancelled),
    };
    let outcome = sandbox.end(cause).await;
    if let Some(door) = door {
        door.close().await;
    }
    ran?;
    report(&outcome, status, output)
}

fn engine_config(global: &Global, operator: &OperatorConfig) -> Result<EngineConfig> {
    let mut config = EngineConfig::new(sandbox_dir(&data_dir(global)?));
    config.extra_ca_pem = operator.ca_pem()?.map(String::into_bytes);
    Ok(config)
}

fn refuse_what_is_not_there(args: &Exec) -> Result<()> {
    let what = match (args.engine, &args.image) {
        (cli::Engine::Builtin, None) => return Ok(()),
        (cli::Engine::Builtin, Some(_)) => "an image as the sandbox's system".to_owned(),
        (engine, _) => format!("the engine {engine:?}").to_lowercase(),
    };
    let hint = "leave it out: the built-in engine needs no image, daemon or runtime".to_owned();
    Err(Misuse::NotYet { what, hint }.into())
}

fn plan(args: &Exec) -> Result<Plan> {
    let limits = Limits {
        cpu_milli: args.cpus.0,
        memory_bytes: args.memory.0,
        pids: args.pids,
        disk_bytes: args.disk.0,
        time_ms: args.time.0,
        // A person or a script watches this command: silence is theirs to judge.
        idle_ms: args.time.0,
        ..Limits::default()
    };
    let workspace = match &args.workspace {
        Some(dir) => Workspace::Directory(absolute(dir)?),
        None => Workspace::Image,
    };
    let mut plan = Plan::new(
        SandboxId::from_uuid(uuid::Uuid::now_v7()),
        limits,
        workspace,
    );
    for path in &args.bind_ro {
        plan.binds.push(Bind::same_path(absolute(path)?));
    }
    Ok(plan)
}

/// Relative paths are the caller's; what is not there is the caller's mistake, said before anything is built.
fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize()
        .map_err(|error| Misuse::usage(format!("{}: {error}", path.display())).into())
}

fn spec(args: &Exec, output: Output) -> Result<ProcessSpec> {
    let mut spec = ProcessSpec::new(args.command.iter().cloned());
    for variable in &args.env {
        let (name, value) = variable_of(variable)?;
        spec = spec.env(name, value);
    }
    if terminal::is_interactive() && !output.is_json() {
        let term = environment::variable("TERM").unwrap_or_else(|| "dumb".into());
        return Ok(spec
            .env("TERM", term)
            .stdio(Stdio::Terminal(terminal::size())));
    }
    Ok(spec.stdio(Stdio::Streams {
        stdin: Stream::Pipe,
        stdout: Stream::Pipe,
        stderr: Stream::Pipe,
    }))
}

fn variable_of(text: &str) -> Result<(String, OsString)> {
    match text.split_once('=') {
        Some(("", _)) => {
            Err(Misuse::usage(format!("--env {text}: a variable needs a name")).into())
        }
        Some((name, value)) => Ok((name.to_owned(), value.into())),
        None => match environment::variable(text) {
            Some(value) => Ok((text.to_owned(), value)),
            None => {
                Err(Misuse::usage(format!("--env {text}: there is no such variable here")).into())
            }
        },
    }
}

enum Ended {
    ByItself(ExitStatus),
    Cancelled,
}

/// Starts the command and copies its streams until it has ended and they are empty.
async fn drive(
    sandbox: &Sandbox,
    spec: ProcessSpec,
    output: Output,
    cancel: &CancellationToken,
) -> Result<Ended> {
    let mut process = sandbox.spawn(spec).await?;
    let raw = match process.terminal {
        Some(_) => Some(RawMode::enter().context("taking over the terminal")?),
        None => None,
    };
    let mut inward = JoinSet::new();
    let mut outward = JoinSet::new();
    connect(&mut process, output, &mut inward, &mut outward);
    let ended = tokio::select! {
        status = wait(&process) => Ended::ByItself(status),
        () = cancel.cancelled() => Ended::Cancelled,
    };
    if matches!(ended, Ended::ByItself(_)) {
        while outward.join_next().await.is_some() {}
    }
    drop(raw);
    Ok(ended)
}

/// Waits for the end, and tells the terminal inside when the one outside changes its size.
async fn wait(process: &Process) -> ExitStatus {
    let Ok(mut resized) = signal(SignalKind::window_change()) else {
        return process.wait().await;
    };
    loop {
        tokio::select! {
            status = process.wait() => return status,
            _ = resized.recv() => {
                let _ = process.resize(terminal::size()).await;
            }
        }
    }
}

fn connect(
    process: &mut Process,
    output: Output,
    inward: &mut JoinSet<()>,
    outward: &mut JoinSet<()>,
) {
    if let Some(terminal) = process.terminal.take() {
        let (reader, writer) = tokio::io::split(terminal);
        inward.spawn(copy(tokio::io::stdin(), writer));
        outward.spawn(copy(reader, tokio::io::stdout()));
        return;
    }
    if let Some(stdin) = process.stdin.take() {
        inward.spawn(copy(tokio::io::stdin(), stdin));
    }
    if let Some(stdout) = process.stdout.take() {
        // Where programs read our standard output, it carries our one object and nothing else.
        if output.is_json() {
            outward.spawn(copy(stdout, tokio::io::stderr()));
        } else {
            outward.spawn(copy(stdout, tokio::io::stdout()));
        }
    }
    if let Some(stderr) = process.stderr.take() {
        outward.spawn(copy(stderr, tokio::io::stderr()));
    }
}

/// Copies until either end closes; then the reader's end is passed on as the writer's.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
    let _ = to.flush().await;
}

fn report(outcome: &Outcome, status: ExitStatus, output: Output) -> Result<Exit> {
    let exit = exit_of(outcome.reason, status);
    if !outcome.reason.is_success() {
        output.note(format_args!(
            "bulkhead: the command {}{}",
            outcome.reason,
            evidence(outcome)
        ));
    }
    output.json_object(&json!({
        "reason": outcome.reason,
        "evidence": outcome.evidence,
        "used": outcome.used,
        "exit_code": exit.code(),
    }))?;
    Ok(exit)
}

fn evidence(outcome: &Outcome) -> String {
    match outcome.evidence.first() {
        Some(evidence) => format!(" ({}: {})", evidence.source, evidence.detail),
        None => String::new(),
    }
}

/// The command's own code where it has one; else what stands for how it ended.
fn exit_of(reason: EndReason, status: ExitStatus) -> Exit {
    let code = match (reason, status) {
        (EndReason::Timeout | EndReason::Idle, _) => 124,
        (EndReason::Cancelled, _) => 130,
        (EndReason::Lost, _) => 125,
        (EndReason::Exit { code }, _) | (_, ExitStatus::Code(code)) => {
            u8::try_from(code).unwrap_or(125)
        }
        (EndReason::Signal { signal }, _) | (_, ExitStatus::Signal(signal)) => of_signal(signal),
        (EndReason::Oom | EndReason::PidsLimit | EndReason::DiskFull, ExitStatus::SandboxEnded) => {
            137
        }
    };
    Exit::Command(code)
}

fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(125, |signal| signal.saturating_add(128))
}

#[cfg(test)]
mod tests {
    use bulkhead_sandbox::{EndReason, ExitStatus};

    use super::exit_of;

    #[test]
    fn section_6_each_end_has_its_code() {
        let cases = [
            (EndReason::Exit { code: 0 }, ExitStatus::Code(0), 0),
            (EndReason::Exit { code: 7 }, ExitStatus::Code(7), 7),
            (
                EndReason::Signal { signal: 15 },
                ExitStatus::Signal(15),
                143,
            ),
            (EndReason::Timeout, ExitStatus::SandboxEnded, 124),
            (EndReason::Cancelled, ExitStatus::SandboxEnded, 130),
            (EndReason::Lost, ExitStatus::SandboxEnded, 125),
            (EndReason::Oom, ExitStatus::Signal(9), 137),
            (EndReason::DiskFull, ExitStatus::Code(1), 1),
            (EndReason::DiskFull, ExitStatus::SandboxEnded, 137),
        ];
        for (reason, status, code) in cases {
            assert_eq!(
                exit_of(reason, status).code(),
                code,
                "{reason:?} {status:?}"
            );
        }
    }
}
