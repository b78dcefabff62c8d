//! `bulkhead serve`: the control plane as a service.

use anyhow::{Context as _, Result};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::net::TcpListener;

use super::data_dir;
use crate::{
    cli::{Global, Serve},
    config::OperatorConfig,
    control::published::Published,
    embedded,
    environment::Environment,
    failure::{Exit, Misuse},
    interrupt::Interrupt,
    output::Output,
};

pub(crate) async fn run(
    args: Serve,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    if args.database_url.is_some() {
        let what = "a database elsewhere (--database-url)".to_owned();
        let hint = "leave it out: the data directory holds the database".to_owned();
        return Err(Misuse::NotYet { what, hint }.into());
    }
    let operator = OperatorConfig::load(global)?;
    let data_dir = data_dir(global)?;
    super::run::can_isolate(&data_dir).await?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| Misuse::usage(format!("cannot listen on {}: {error}", args.listen)))?;
    let address = listener
        .local_addr()
        .context("reading the listener's address")?;
    let plane = embedded::open_to_work(&data_dir, &operator, environment, output).await?;
    let first_token = plane.first_token().await?;
    let token_path = plane.first_token_path();
    if let Some(token) = &first_token {
        output.note(format_args!(
            "The first token, said this once: {}",
            token.expose_secret()
        ));
    }
    output.note(format_args!(
        "The first token is in {}, for you alone; remove the file when you have it elsewhere.",
        token_path.display()
    ));
    output.words(format_args!("Serving on http://{address}"))?;
    output.json_object(&json!({"listening": address.to_string(), "token_file": token_path}))?;
    let _published = Published::write(&data_dir, address)?;
    let interrupt = Interrupt::listen(output)?;
    let served = plane
        .serve(listener, interrupt.token())
        .await
        .context("serving the API");
    plane.shutdown().await;
    served.map(|()| Exit::Done)
}
