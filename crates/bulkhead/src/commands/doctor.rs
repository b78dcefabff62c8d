//! `bulkhead doctor`.

use anyhow::Result;
use bulkhead_sandbox::{
    EngineConfig,
    doctor::{self, Check},
};
use serde_json::json;

use super::{data_dir, sandbox_dir};
use crate::{cli::Global, failure::Exit, output::Output};

pub(crate) async fn run(global: &Global, output: Output) -> Result<Exit> {
    let checks = doctor::checks(EngineConfig::new(sandbox_dir(&data_dir(global)?))).await;
    anyhow::ensure!(
        !checks.is_empty(),
        "nothing was probed, so nothing is known"
    );
    let missing = checks.iter().filter(|check| !check.ok).count();
    for check in &checks {
        output.words(line(check))?;
    }
    output.words(verdict(missing))?;
    output.json_object(&json!({
        "isolates": missing == 0,
        "checks": checks.iter().map(object).collect::<Vec<_>>(),
    }))?;
    Ok(if missing == 0 {
        Exit::Done
    } else {
        Exit::Refused
    })
}

fn line(check: &Check) -> String {
    let mark = if check.ok { "✓" } else { "✗" };
    let remedy = check
        .remedy
        .as_ref()
        .map(|remedy| format!("\n    → {remedy}"));
    format!(
        "{mark} {:<20} {}{}",
        check.name,
        check.seen,
        remedy.unwrap_or_default()
    )
}

fn verdict(missing: usize) -> String {
    match missing {
        0 => "\nThis machine can build every boundary.".into(),
        1 => "\nOne boundary is missing: nothing runs here until it is there.".into(),
        n => format!("\n{n} boundaries are missing: nothing runs here until they are there."),
    }
}

fn object(check: &Check) -> serde_json::Value {
    json!({"name": check.name, "ok": check.ok, "seen": check.seen, "remedy": check.remedy})
}
