//! `bulkhead admin`: look after the data directory.

use anyhow::Result;
use bulkhead_store::MasterKey;
use serde_json::json;

use super::{gc, secrets::open};
use crate::{
    cli::{Admin, AdminCommand, Global},
    environment::Environment,
    failure::Exit,
    output::Output,
    words::now_ms,
};

pub(crate) async fn run(
    args: Admin,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    if let AdminCommand::Gc { dry_run } = args.command {
        return gc::run(dry_run, global, environment, output).await;
    }
    let store = open(global, environment).await?;
    match args.command {
        AdminCommand::Gc { .. } => {}
        AdminCommand::Backup { file } => {
            store.backup(&file).await?;
            output.words(format_args!(
                "The database is copied to {}.",
                file.display()
            ))?;
            output.note("The key is not in it: keep that apart, or the secrets in it are lost.");
            output.json_object(&json!({"backup": file}))?;
        }
        AdminCommand::RotateKey => {
            let key = match environment.secret("BULKHEAD_NEW_MASTER_KEY") {
                Some(key) => MasterKey::Given(key.clone()),
                None => MasterKey::File,
            };
            let (id, secrets) = store.rotate_master_key(key, now_ms()).await?;
            output.words(format_args!(
                "{secrets} secrets are sealed with the new key {id}."
            ))?;
            output.json_object(&json!({"key_id": id, "secrets": secrets}))?;
        }
    }
    store.close().await;
    Ok(Exit::Done)
}
