//! `bulkhead host check`: the quick part of what every host has to do, tried on one.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use bulkhead_host::{
    Command, Endpoint, ExitStatus, FileSystem, Host, HostError, Signal, Stdio, Target, WriteOptions,
};
use bulkhead_model::session::{DockerConfig, Engine, HostPlug, PlugConfig, Purpose, SessionFile};
use bulkhead_session::{
    hosts::{self, Place},
    summary::IsolationSummary,
};
use serde::Serialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::session::{local_env, machine, ssh_env};
use crate::{
    cli::{self, Global, HostCommand},
    config::OperatorConfig,
    environment::{self, Environment},
    failure::{Exit, Misuse},
    output::Output,
};

/// The longest that one check may take; the first may make a container.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    seen: String,
}

pub(crate) async fn run(
    args: cli::Host,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    let HostCommand::Check(args) = args.command;
    let operator = OperatorConfig::load(global)?;
    let (configs, base) = described(&args.host)?;
    let place = Place {
        machine: machine(global, &operator)?,
        base,
        local_env: local_env(),
        ssh_env: ssh_env(environment),
        program: Some(environment::own_program()?),
    };
    let id = uuid::Uuid::new_v4().simple().to_string();
    let id = id.get(..8).unwrap_or(&id);
    let chain =
        hosts::chain(&place, &configs, id).map_err(|error| Misuse::usage(error.to_string()))?;
    let host = chain.last().cloned().context("there is no host")?;
    let begun = std::time::Instant::now();
    let (checks, refused) = checks(&host).await;
    let summary = IsolationSummary::of(&*host);
    let mut left = vec![];
    for host in chain.iter().rev() {
        if let Err(error) = host.teardown().await {
            left.push(format!("{:#}", anyhow::Error::from(error)));
        }
    }
    hosts::forget(id);
    let ended = Check {
        name: "teardown",
        ok: left.is_empty(),
        seen: match left.is_empty() {
            true => "nothing is left".to_owned(),
            false => left.join("; "),
        },
    };
    let checks: Vec<_> = checks.into_iter().chain([ended]).collect();
    say(&host.describe(), &checks, &summary, begun.elapsed(), output)?;
    Ok(match (refused, checks.iter().all(|check| check.ok)) {
        (true, _) => Exit::Refused,
        (false, true) => Exit::Done,
        (false, false) => Exit::Failed,
    })
}

/// What the argument names: one host, or the hosts of a file.
fn described(host: &str) -> Result<(Vec<HostPlug>, std::path::PathBuf)> {
    let here = std::env::current_dir().context("finding the working directory")?;
    if let Some((kind @ ("docker" | "podman"), image)) = host.split_once(':') {
        let mut config = read_yaml("docker", image)?;
        if let HostPlug::Docker(DockerConfig { engine, .. }) = &mut config
            && kind == "podman"
        {
            *engine = Engine::Podman;
        }
        return Ok((vec![config], here));
    }
    if let Some(("ssh", name)) = host.split_once(':') {
        return Ok((vec![read_yaml("ssh", name)?], here));
    }
    if matches!(host, "local" | "sandbox") {
        let text = format!("plugs: [{host}]");
        return Ok((plugs(read(&text)?), here));
    }
    let path = Path::new(host);
    if !path.is_file() {
        let what = format!("{host:?} names no host");
        let hint = "say local, sandbox, ssh:NAME, docker:IMAGE, podman:IMAGE, or a file with plugs that are hosts";
        return Err(Misuse::usage_hint(what, hint).into());
    }
    let file = super::session::read_file(path, Purpose::Hosts)?;
    let found = plugs(file);
    if found.is_empty() {
        return Err(Misuse::usage(format!("{host} names no host among its plugs")).into());
    }
    Ok((found, super::session::base(path)?))
}

fn read_yaml(kind: &str, name: &str) -> Result<HostPlug> {
    let name = serde_json::to_string(name)?;
    let found = plugs(read(&format!("plugs: [{{{kind}: {name}}}]"))?);
    found.into_iter().next().context("there is no host")
}

fn read(text: &str) -> Result<SessionFile> {
    let known = bulkhead_model::workflow::Known::default();
    SessionFile::read("HOST", text, &known, Purpose::Hosts)
        .map_err(|error| Misuse::usage(error.to_string()).into())
}

fn plugs(file: SessionFile) -> Vec<HostPlug> {
    let hosts = file.plugs.into_iter().filter_map(|plug| match plug {
        PlugConfig::Host(host) => Some(host),
        _ => None,
    });
    hosts.collect()
}

/// Every check in order; whether the host itself could not be built, in which case the rest is not tried.
async fn checks(host: &Arc<dyn Host>) -> (Vec<Check>, bool) {
    let described = Check {
        name: "lazy",
        ok: !host.is_connected(),
        seen: "describing it did nothing".to_owned(),
    };
    let mut checks = vec![described];
    let (first, refused) = first_use(&**host).await;
    let went = first.ok;
    checks.push(first);
    if !went {
        return (checks, refused);
    }
    checks.push(check("exit code", exit_code(&**host)).await);
    checks.push(check("streams", streams(&**host)).await);
    checks.push(check("signal", signal(&**host)).await);
    checks.push(check("no such program", missing(&**host)).await);
    checks.push(check("environment", empty_environment(&**host)).await);
    checks.push(check("files", files(host)).await);
    checks.push(check("forwards", forwards(&**host)).await);
    (checks, false)
}

async fn first_use(host: &dyn Host) -> (Check, bool) {
    let name = "first use";
    match timeout(LIMIT, output_of(host, "uname -sm; id -un")).await {
        Ok(Ok(said)) => {
            let seen = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let ok = true;
            (Check { name, ok, seen }, false)
        }
        Ok(Err(error)) => {
            let refused = error.downcast_ref().is_some_and(|error| {
                matches!(error, HostError::Refused(_) | HostError::Connect { .. })
            });
            let (ok, seen) = (false, format!("{error:#}"));
            (Check { name, ok, seen }, refused)
        }
        Err(_) => {
            let (ok, seen) = (false, format!("it took longer than {LIMIT:?}"));
            (Check { name, ok, seen }, false)
        }
    }
}

async fn check(name: &'static str, tried: impl Future<Output = Result<String>>) -> Check {
    let (ok, seen) = match timeout(LIMIT, tried).await {
        Ok(Ok(seen)) => (true, seen),
        Ok(Err(error)) => (false, format!("{error:#}")),
        Err(_) => (false, format!("it took longer than {LIMIT:?}")),
    };
    Check { name, ok, seen }
}

async fn output_of(host: &dyn Host, line: &str) -> Result<String> {
    let mut process = host.spawn(Command::shell(line)).await?;
    let mut said = String::new();
    if let Some(stdout) = process.stdout.take() {
        stdout.take(64 << 10).read_to_string(&mut said).await?;
    }
    match process.control.wait().await {
        ExitStatus::Code(0) => Ok(said),
        status => anyhow::bail!("{line:?} {status}"),
    }
}

async fn exit_code(host: &dyn Host) -> Result<String> {
    let process = host.spawn(Command::shell("exit 7")).await?;
    match process.control.wait().await {
        ExitStatus::Code(7) => Ok("7 came back as 7".to_owned()),
        status => anyhow::bail!("a process that should exit with 7 {status}"),
    }
}

async fn streams(host: &dyn Host) -> Result<String> {
    let command = Command::shell("cat; echo away >&2").stdio(Stdio::PIPES);
    let mut process = host.spawn(command).await?;
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            stdin.write_all(&bytes).await?;
            stdin.shutdown().await?;
        }
        Ok::<_, std::io::Error>(())
    };
    let read = async {
        let mut back = vec![];
        if let Some(mut stdout) = stdout {
            stdout.read_to_end(&mut back).await?;
        }
        Ok::<_, std::io::Error>(back)
    };
    let (wrote, back) = tokio::join!(write, read);
    wrote?;
    let mut errors = String::new();
    if let Some(mut stderr) = process.stderr.take() {
        stderr.read_to_string(&mut errors).await?;
    }
    anyhow::ensure!(back? == bytes, "what went in did not come out");
    anyhow::ensure!(errors == "away\n", "standard error held {errors:?}");
    Ok("1 MiB in and out, byte for byte".to_owned())
}

async fn signal(host: &dyn Host) -> Result<String> {
    let line = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.1; done";
    let mut process = host.spawn(Command::shell(line)).await?;
    let mut stdout = process.stdout.take().context("there is no output")?;
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).await?;
    process
        .control
        .signal(Signal::Terminate, Target::Process)
        .await?;
    match process.control.wait().await {
        ExitStatus::Code(3) => Ok("TERM arrived".to_owned()),
        status => anyhow::bail!("a process that catches TERM {status}"),
    }
}

async fn missing(host: &dyn Host) -> Result<String> {
    match host.spawn(Command::new(["bulkhead-no-such-program"])).await {
        Err(HostError::NotFound { .. }) => Ok("it is said so".to_owned()),
        Err(error) => Err(error).context("another error than \"not found\""),
        Ok(_) => anyhow::bail!("it was started"),
    }
}

/// Nothing of this process's own environment may be there, but what every process on this machine has.
async fn empty_environment(host: &dyn Host) -> Result<String> {
    let seen = output_of(host, "env").await?;
    let variables: Vec<_> = seen
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| !matches!(*name, "PWD" | "SHLVL" | "_" | "OLDPWD"))
        .collect();
    let usual = local_env();
    let leaked = variables.iter().find(|(name, value)| {
        let ours = environment::variable(name);
        !usual.contains_key(*name) && ours.is_some_and(|ours| ours == *value)
    });
    anyhow::ensure!(
        leaked.is_none(),
        "{:?} of this process is there",
        leaked.map(|(name, _)| name)
    );
    let names: Vec<_> = variables.into_iter().map(|(name, _)| name).collect();
    Ok(names.join(" "))
}

async fn files(host: &Arc<dyn Host>) -> Result<String> {
    let home = output_of(&**host, "mktemp -d").await?;
    let dir = home.trim_end().to_owned();
    let provider = host.files();
    let fs = FileSystem::new(provider);
    let path = format!("{dir}/a file");
    let tried = async {
        let line = format!("printf hello > '{path}'");
        output_of(&**host, &line).await?;
        let stat = fs
            .provider()
            .stat(Path::new(&path), bulkhead_host::Follow::Yes)
            .await?;
        anyhow::ensure!(stat.size == 5, "a file of 5 bytes has {} bytes", stat.size);
        let ours = Path::new(&dir).join("another file");
        fs.write_file(&ours, "there", WriteOptions::WRITE).await?;
        let seen = output_of(&**host, &format!("cat '{}'", ours.display())).await?;
        anyhow::ensure!(
            seen == "there",
            "a process reads {seen:?} of what was written"
        );
        anyhow::ensure!(
            fs.read_file(Path::new(&path)).await? == b"hello",
            "what a process wrote is read as something else"
        );
        let missing = fs
            .provider()
            .stat(
                Path::new("/bulkhead-no-such-file"),
                bulkhead_host::Follow::Yes,
            )
            .await;
        match missing {
            Err(error) if error.code.name() == "ENOENT" => {}
            Err(error) => return Err(error).context("another error than ENOENT"),
            Ok(_) => anyhow::bail!("a file that is not there was found"),
        }
        Ok("written and read from both sides; what is not there is ENOENT".to_owned())
    };
    let tried = tried.await;
    output_of(&**host, &format!("rm -rf '{dir}'")).await?;
    tried
}

/// Listens on the host and connects to that place from here: one forward in each direction, with bytes both ways.
async fn forwards(host: &dyn Host) -> Result<String> {
    let any = Endpoint::Tcp(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut listener = host.listen(any).await?;
    let at = listener.endpoint();
    let (near, far) = tokio::join!(host.connect(at), listener.accept());
    let (mut near, mut far) = (near?, far?);
    for _ in 0..2 {
        near.write_all(b"over").await?;
        near.flush().await?;
        let mut seen = [0; 4];
        far.read_exact(&mut seen).await?;
        anyhow::ensure!(&seen == b"over", "the bytes arrive changed");
        std::mem::swap(&mut near, &mut far);
    }
    Ok("a port there from here, and a port here from there".to_owned())
}

fn say(
    host: &str,
    checks: &[Check],
    summary: &IsolationSummary,
    took: Duration,
    output: Output,
) -> Result<()> {
    let rows = checks.iter().map(|check| {
        let mark = if check.ok { "ok" } else { "FAILS" };
        [mark.to_owned(), check.name.to_owned(), check.seen.clone()]
    });
    output.words(format_args!("{host}"))?;
    output.table(["", "CHECK", "SEEN"], rows)?;
    output.words(format_args!("\n{summary}"))?;
    output.json_object(&serde_json::json!({
        "host": host,
        "ok": checks.iter().all(|check| check.ok),
        "checks": checks,
        "isolation": summary,
        "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    }))?;
    Ok(())
}
