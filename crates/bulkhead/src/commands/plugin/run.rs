//! `bulkhead plugin run`: one call, with all that can be known of it.

use anyhow::Result;
use bulkhead_isolates::calls::rehearsal::{Network, Reply};
use bulkhead_wire::isolates::result::Outcome;
use serde_json::{Value, json};

use super::{
    invoke::{self, Ended, Loaded, Order},
    service::Service,
    source::{self, Source},
    words,
};
use crate::{
    cli::{Global, PluginRun},
    failure::Exit,
    output::Output,
};

pub(super) async fn run(args: &PluginRun, global: &Global, output: Output) -> Result<Exit> {
    let source = Source::read(&args.plugin.directory)?;
    let handler = invoke::handler(&source, &args.entry)?;
    let settings = source.settings(args.plugin.settings.as_deref())?;
    let secrets = invoke::secrets(&source, args.secrets.as_deref())?;
    let input: Value = match &args.input {
        Some(file) => source::json(file)?,
        None => json!({}),
    };
    let replies = match &args.replies {
        Some(file) => Some((source::json::<Vec<Reply>>(file)?, Network::Real)),
        None => None,
    };
    let order = Order {
        handler,
        input,
        settings,
        secrets,
        script: replies,
    };
    let service = Service::open(&args.plugin, global).await?;
    let ended = call(&service, &source, order, output).await;
    service.close().await;
    match ended? {
        Ok(ended) => say(&ended, output),
        Err(exit) => Ok(exit),
    }
}

/// A module that cannot be loaded is said at once.
async fn call(
    service: &Service,
    source: &Source,
    order: Order,
    output: Output,
) -> Result<Result<Ended, Exit>> {
    let checked = match invoke::load(service, source).await? {
        Loaded::Good(checked) => checked,
        Loaded::Fault(fault) => {
            output.note(format_args!("bulkhead: {}", words::fault(&fault)));
            output.json_object(&json!({ "fault": words::fault_json(&fault) }))?;
            return Ok(Err(Exit::Failed));
        }
    };
    let live = (!output.is_json()).then_some(output);
    invoke::invoke(service, source, &checked, order, live)
        .await
        .map(Ok)
}

fn say(ended: &Ended, output: Output) -> Result<Exit> {
    let Ended {
        result,
        logs,
        limits,
        ..
    } = ended;
    output.json_object(&words::json(result, logs, limits))?;
    let exit = match &result.outcome {
        Some(Outcome::ValueJson(text)) => {
            let value: Value = serde_json::from_str(text).unwrap_or_default();
            output.words(serde_json::to_string_pretty(&value)?)?;
            Exit::Done
        }
        Some(Outcome::Fault(fault)) => {
            output.note(format_args!("bulkhead: {}", words::fault(fault)));
            Exit::Failed
        }
        Some(Outcome::NotRun(not_run)) => {
            output.note(format_args!("bulkhead: {}", words::not_run(not_run)));
            Exit::Failed
        }
        None => Exit::Failed,
    };
    if output.is_json() {
        return Ok(exit);
    }
    output.note("");
    for [name, used, limit] in words::usage(&result.usage.unwrap_or_default(), limits) {
        let of = if limit.is_empty() {
            String::new()
        } else {
            format!("  of {limit}")
        };
        output.note(format_args!("  {name:<26} {used:>14}{of}"));
    }
    if result.logs_left_out > 0 {
        output.note(format_args!(
            "  {} lines of log were left out, beyond the limits",
            result.logs_left_out
        ));
    }
    for near in &result.warnings {
        output.note(format_args!("  warning: {}", words::warning(near)));
    }
    Ok(exit)
}
