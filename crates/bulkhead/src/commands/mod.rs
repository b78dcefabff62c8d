//! One module a command. Each turns its arguments into calls of the libraries.

mod doctor;
mod sandbox_exec;
mod terminal;

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    cli::{Cli, Command, Global, SandboxCommand},
    environment::{self, Environment},
    failure::{Exit, Problem},
    output::Output,
};

/// Runs the command on a runtime of its own. What still blocks a thread at the end (reading a terminal, say)
/// is not waited for.
pub(crate) fn run(cli: Cli, environment: Environment, output: Output) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(perform(cli, environment, output));
    runtime.shutdown_background();
    result
}

async fn perform(cli: Cli, _environment: Environment, output: Output) -> Result<Exit> {
    let global = cli.global;
    match cli.command {
        Command::Sandbox(sandbox) => match sandbox.command {
            SandboxCommand::Exec(exec) => sandbox_exec::run(exec, &global, output).await,
        },
        Command::Doctor => doctor::run(&global, output).await,
        _ => Err(Problem::NotYet {
            what: "this command".into(),
            hint: "use a later version".into(),
        }
        .into()),
    }
}

/// Where runs, logs and the key are kept.
fn data_dir(global: &Global) -> Result<PathBuf> {
    global
        .data_dir
        .clone()
        .or_else(|| Some(environment::xdg("XDG_DATA_HOME", ".local/share")?.join("bulkhead")))
        .ok_or_else(|| {
            Problem::usage_hint(
                "this account has no home directory",
                "name a place with --data-dir",
            )
            .into()
        })
}

/// Where what is temporary lives: beside the data, because it may be large and memory file systems are not for that.
fn run_dir(global: &Global) -> Result<PathBuf> {
    Ok(data_dir(global)?.join("run"))
}
