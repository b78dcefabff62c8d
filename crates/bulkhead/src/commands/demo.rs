//! `bulkhead demo`.

use anyhow::Result;

use crate::{
    cli::{Demo, Global},
    environment::Environment,
    failure::{Exit, Misuse},
    output::Output,
};

pub(crate) async fn run(
    _args: Demo,
    _global: &Global,
    _environment: &Environment,
    _output: Output,
) -> Result<Exit> {
    let (what, hint) = ("the demo".to_owned(), "use a later version".to_owned());
    Err(Misuse::NotYet { what, hint }.into())
}
