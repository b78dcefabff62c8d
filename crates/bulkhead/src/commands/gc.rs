//! `bulkhead admin gc`: remove what is past its retention, and say exactly what that was.

use anyhow::Result;
use bulkhead_store::{
    Access, Store,
    logs::LocalLogs,
    retention::{Mend, Report},
};
use serde_json::{Value, json};

use super::{data_dir, secrets::master_key};
use crate::{
    cli::Global, config::OperatorConfig, environment::Environment, failure::Exit, output::Output,
    words::now_ms,
};

/// Removing wants the data directory for itself: a server that writes now could lose what it has just made, and does
/// this by itself anyway. Looking may stand beside it.
pub(super) async fn run(
    dry_run: bool,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    let (access, mend) = match dry_run {
        true => (Access::Tool, Mend::Report),
        false => (Access::Server, Mend::Remove),
    };
    let policy = OperatorConfig::load(global)?.policy();
    let store = Store::open(&data_dir(global)?, access, master_key(environment)).await?;
    let logs = LocalLogs::new(store.dir().logs());
    let report = store.gc(&logs, &policy, mend, now_ms()).await?;
    store.close().await;
    say(&report, mend, output)?;
    output.json_object(&object(&report, mend))?;
    Ok(Exit::Done)
}

fn say(report: &Report, mend: Mend, output: Output) -> Result<()> {
    let verb = match mend {
        Mend::Remove => "Removed",
        Mend::Report => "Would remove",
    };
    for run in &report.removed {
        let bytes = run.log_bytes + run.artifact_bytes;
        output.words(format_args!(
            "{verb} run {}, {bytes} bytes: {}",
            run.run, run.reason
        ))?;
    }
    for log in &report.logs {
        output.words(format_args!(
            "{verb} the log of {}, {} bytes; its run stays",
            log.key, log.bytes
        ))?;
    }
    for orphan in &report.orphans {
        output.words(format_args!("{verb} what lost its counterpart: {orphan}"))?;
    }
    for (run, why) in &report.kept {
        output.words(format_args!("Kept run {run}: {why}"))?;
    }
    output.words(format_args!(
        "{} ended runs are within their time, {} have not ended.",
        report.within_policy, report.live
    ))?;
    Ok(())
}

fn object(report: &Report, mend: Mend) -> Value {
    let removed = report.removed.iter().map(|run| {
        json!({"run": run.run, "reason": run.reason.to_string(), "log_bytes": run.log_bytes, "artifact_bytes": run.artifact_bytes})
    });
    let kept = report
        .kept
        .iter()
        .map(|(run, why)| json!({"run": run, "why": why.to_string()}));
    json!({
        "dry_run": mend == Mend::Report,
        "removed": removed.collect::<Vec<_>>(),
        "kept": kept.collect::<Vec<_>>(),
        "logs": report.logs.iter().map(|log| json!({"of": log.key.to_string(), "bytes": log.bytes})).collect::<Vec<_>>(),
        "orphans": report.orphans.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "within_policy": report.within_policy,
        "live": report.live,
        "tokens": report.api_tokens,
    })
}
