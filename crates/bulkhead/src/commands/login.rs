//! `bulkhead login` and `bulkhead logout`.

use std::io::{IsTerminal as _, Read as _};

use anyhow::{Context as _, Result};
use secrecy::SecretString;
use serde_json::json;
use zeroize::Zeroizing;

use crate::{
    cli::{Global, Login, Logout},
    config::OperatorConfig,
    control::{self, logins::Logins},
    environment::Environment,
    failure::{Exit, Misuse},
    output::Output,
};

/// Far more than any token is.
const MAX_TOKEN: u64 = 4096;

pub(crate) async fn login(
    args: Login,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    let operator = OperatorConfig::load(global)?;
    // Before anything is asked: a file that cannot be used is known at once.
    let mut logins = Logins::open()?;
    let token = match &args.token_file {
        Some(file) => control::token_in(file)?,
        None => given(environment, &args.server)?,
    };
    control::try_token(&args.server, token.clone(), &operator).await?;
    logins.keep(&args.server, token)?;
    let (server, file) = (&args.server, logins.file().display().to_string());
    output.words(format_args!(
        "The token of {server} works, and is kept in {file}."
    ))?;
    output.json_object(&json!({"server": server, "file": file}))?;
    Ok(Exit::Done)
}

pub(crate) fn logout(args: &Logout, output: Output) -> Result<Exit> {
    let had = Logins::open()?.forget(&args.server)?;
    let server = &args.server;
    if had {
        output.words(format_args!("The token of {server} is forgotten."))?;
    } else {
        output.words(format_args!("There was no token of {server}."))?;
    }
    output.json_object(&json!({"server": server, "removed": had}))?;
    Ok(Exit::Done)
}

fn given(environment: &Environment, server: &str) -> Result<SecretString> {
    if let Some(token) = environment.secret("BULKHEAD_TOKEN") {
        return Ok(token.clone());
    }
    if std::io::stdin().is_terminal() {
        let asked = dialoguer::Password::new()
            .with_prompt(format!("Token of {server}"))
            .interact();
        return Ok(asked.context("asking for the token")?.trim().into());
    }
    let mut text = Zeroizing::new(String::new());
    std::io::stdin()
        .take(MAX_TOKEN)
        .read_to_string(&mut text)
        .context("reading the token from standard input")?;
    match text.trim() {
        "" => Err(Misuse::usage_hint(
            "there is no token on standard input",
            "bulkhead login < token.txt, or --token-file",
        )
        .into()),
        token => Ok(token.into()),
    }
}
