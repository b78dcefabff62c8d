//! One module a command. Each turns its arguments into calls of the libraries.

mod admin;
mod demo;
mod doctor;
mod gc;
mod host_check;
mod isolates;
mod login;
mod network;
mod plugin;
mod run;
mod runs;
mod sandbox_exec;
pub(crate) mod secrets;
mod serve;
mod session;
mod session_worker;
mod terminal;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;

use crate::{
    cli::{Agent, Cli, Command, Global, SandboxCommand},
    environment::{self, Environment},
    failure::{Exit, Misuse},
    output::Output,
};

/// How long tasks have to end with the command. A thread that reads a terminal never does, and is left.
const WIND_DOWN: Duration = Duration::from_millis(100);
/// A session reads no terminal, and what its tasks hold must be cleaned up.
const SESSION_WIND_DOWN: Duration = Duration::from_secs(2);

/// Runs the command on a runtime of its own.
pub(crate) fn run(cli: Cli, environment: Environment, output: Output) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let wind_down = match cli.command {
        Command::SessionWorker => SESSION_WIND_DOWN,
        _ => WIND_DOWN,
    };
    let result = runtime.block_on(perform(cli, environment, output));
    runtime.shutdown_timeout(wind_down);
    result
}

async fn perform(cli: Cli, environment: Environment, output: Output) -> Result<Exit> {
    let global = cli.global;
    match cli.command {
        Command::Sandbox(sandbox) => match sandbox.command {
            SandboxCommand::Exec(exec) => sandbox_exec::run(exec, &global, output).await,
        },
        Command::Run(args) => run::run(args, &global, &environment, output).await,
        Command::Session(args) => session::run(args, &global, &environment, output).await,
        Command::Host(args) => host_check::run(args, &global, &environment, output).await,
        Command::Isolates(args) => isolates::run(args, &global, output).await,
        Command::Plugin(args) => plugin::run(args, &global, output).await,
        Command::SessionWorker => session_worker::run().await,
        Command::Doctor => doctor::run(&global, output).await,
        Command::Demo(args) => demo::run(args, &global, &environment, output).await,
        Command::Runs(args) => runs::run(args, &global, &environment, output).await,
        Command::Serve(args) => serve::run(args, &global, &environment, output).await,
        Command::Login(args) => login::login(args, &global, &environment, output).await,
        Command::Logout(args) => login::logout(&args, output),
        Command::Agent(Agent::Scripted { file }) => scripted(&file).await,
        Command::Secrets(args) => secrets::run(args, &global, &environment, output).await,
        Command::Admin(args) => admin::run(args, &global, &environment, output).await,
    }
}

async fn scripted(file: &Path) -> Result<Exit> {
    let code =
        bulkhead_session::scripted::run(file, tokio::io::stdin(), tokio::io::stdout()).await?;
    Ok(Exit::Command(code))
}

/// Where runs, logs and the key are kept.
fn data_dir(global: &Global) -> Result<PathBuf> {
    global
        .data_dir
        .clone()
        .or_else(|| Some(environment::xdg("XDG_DATA_HOME", ".local/share")?.join("bulkhead")))
        .ok_or_else(|| {
            Misuse::usage_hint(
                "this account has no home directory",
                "name a place with --data-dir",
            )
            .into()
        })
}

/// The sandbox engine's own directory: beside the data, because workspaces may be large, and memory file systems are
/// not for that.
pub(crate) fn sandbox_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("run/sandbox")
}
