//! `bulkhead plugin check | run | test`: what an author does with the very service that runs plugins (P12).

mod case;
mod check;
mod invoke;
mod local_platform;
mod run;
pub(crate) mod service;
mod source;
mod test;
mod words;

use anyhow::Result;

use crate::{
    cli::{self, Global, PluginCommand},
    failure::Exit,
    output::Output,
};

pub(super) async fn run(args: cli::Plugin, global: &Global, output: Output) -> Result<Exit> {
    match args.command {
        PluginCommand::Check(args) => check::run(&args, global, output).await,
        PluginCommand::Run(args) => run::run(&args, global, output).await,
        PluginCommand::Test(args) => test::run(&args, global, output).await,
    }
}
