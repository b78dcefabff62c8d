//! `bulkhead secrets`: straight into the store, also beside a running server.

use std::io::{IsTerminal as _, Read as _};

use anyhow::{Context as _, Result};
use bulkhead_model::SecretName;
use bulkhead_store::{Access, MasterKey, Store};
use secrecy::SecretString;
use serde_json::json;
use zeroize::Zeroizing;

use super::data_dir;
use crate::{
    cli::{Global, Secrets, SecretsCommand},
    environment::Environment,
    failure::{Exit, Misuse},
    output::Output,
    words::{moment, now_ms},
};

/// More than any secret may be; the store says the exact limit.
const MAX_READ: u64 = 1 << 20;

pub(crate) async fn run(
    args: Secrets,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    let store = open(global, environment).await?;
    match args.command {
        SecretsCommand::Set { name } => {
            let name = parse(&name)?;
            let version = store.set_secret(&name, &value(&name)?, now_ms()).await?;
            say_set(&name, version, output)?;
        }
        SecretsCommand::Rotate { name } => {
            let name = parse(&name)?;
            let version = store.rotate_secret(&name, &value(&name)?, now_ms()).await?;
            say_set(&name, version, output)?;
        }
        SecretsCommand::Remove { name } => {
            let name = parse(&name)?;
            store.remove_secret(&name).await?;
            output.words(format_args!("{name} is removed."))?;
            output.json_object(&json!({"name": name, "removed": true}))?;
        }
        SecretsCommand::List => list(&store, output).await?,
    }
    store.close().await;
    Ok(Exit::Done)
}

/// Opens the data directory's store as a tool, which may stand beside a running server.
pub(super) async fn open(global: &Global, environment: &Environment) -> Result<Store> {
    Ok(Store::open(&data_dir(global)?, Access::Tool, master_key(environment)).await?)
}

/// From the variable where the operator has it there, else from the data directory's own file.
pub(crate) fn master_key(environment: &Environment) -> MasterKey {
    match environment.secret("BULKHEAD_MASTER_KEY") {
        Some(key) => MasterKey::Given(key.clone()),
        None => MasterKey::File,
    }
}

fn parse(name: &str) -> Result<SecretName> {
    name.parse()
        .map_err(|error: bulkhead_model::ids::InvalidId| Misuse::usage(error.to_string()).into())
}

/// From standard input, without its last line end; from a person, asked twice and not shown.
fn value(name: &SecretName) -> Result<SecretString> {
    if std::io::stdin().is_terminal() {
        let value = dialoguer::Password::new()
            .with_prompt(format!("Value of {name}"))
            .with_confirmation("Once more", "These differ.")
            .interact()
            .context("asking for the value")?;
        return Ok(value.into());
    }
    let mut text = Zeroizing::new(String::new());
    std::io::stdin()
        .take(MAX_READ)
        .read_to_string(&mut text)
        .map_err(|error| {
            Misuse::usage(format!("reading the value from standard input: {error}"))
        })?;
    Ok(text.trim_end_matches(['\r', '\n']).into())
}

fn say_set(name: &SecretName, version: u64, output: Output) -> Result<()> {
    output.words(format_args!("{name} is set (version {version})."))?;
    output.json_object(&json!({"name": name, "version": version}))?;
    Ok(())
}

async fn list(store: &Store, output: Output) -> Result<()> {
    let secrets = store.secrets().await?;
    let rows = secrets.iter().map(|secret| {
        [
            secret.name.to_string(),
            format!("version {}", secret.version),
            moment(secret.updated_at_ms),
        ]
    });
    output.table(["NAME", "VERSION", "SET"], rows)?;
    let list: Vec<_> = secrets
        .iter()
        .map(|secret| json!({"name": secret.name, "version": secret.version, "updated_at_ms": secret.updated_at_ms}))
        .collect();
    output.json_object(&json!({"secrets": list}))?;
    Ok(())
}
