//! The `bulkhead` program: commands, configuration and wiring. What it does is done by the libraries; here
//! arguments become calls, and results become words, JSON and exit codes.

mod cli;
mod commands;
mod config;
mod control;
mod embedded;
mod environment;
mod failure;
mod interrupt;
mod output;
mod plain;
mod watch;
mod words;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{cli::Cli, environment::Environment, failure::Exit, output::Output};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::wrong_usage(&error).into(),
    };
    let output = Output::new(cli.format());
    environment::raise_open_files();
    let errors = cli.command.errors();
    let environment = match cli.command.holds_credentials() {
        true => environment::take(),
        false => Ok(Environment::default()),
    };
    environment
        .and_then(|environment| commands::run(cli, environment, output))
        .unwrap_or_else(|error| failure::report(&error, errors, output))
        .into()
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
