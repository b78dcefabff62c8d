//! Which sessions there are, and mending those whose parent died.

use anyhow::Result;
use bulkhead_session::{Record, Sessions, State, undo};
use serde_json::json;

use crate::{failure::Exit, output::Output, words::moment};

/// Performs the journals of sessions that nobody holds any more. Their processes ended with their parents.
pub(super) async fn mend(sessions: &Sessions, output: Output) {
    for (dir, mut record) in sessions.all() {
        if !matches!(record.state, State::Running { .. }) || record.is_running() {
            continue;
        }
        let undone = undo(&dir).await.unwrap_or_default();
        for step in &undone {
            if let Some(left) = &step.left {
                output.note(format_args!(
                    "bulkhead: not undone: {:?}: {left}",
                    step.what
                ));
            }
        }
        record.state = State::Ended {
            ok: false,
            words: Some("its process was killed".to_owned()),
        };
        if let Err(error) = record.write(&dir) {
            output.note(format_args!(
                "bulkhead: noting the end of {}: {error}",
                record.order.id
            ));
        }
    }
}

pub(super) async fn list(sessions: &Sessions, output: Output) -> Result<Exit> {
    mend(sessions, output).await;
    let all = sessions.all();
    let rows = all.iter().map(|(_, record)| {
        [
            record.order.id.clone(),
            state(record),
            moment(record.started_ms),
            record
                .order
                .name
                .clone()
                .unwrap_or_else(|| record.file.clone()),
        ]
    });
    output.table(["SESSION", "STATE", "STARTED", "WHAT"], rows)?;
    for (dir, record) in &all {
        output.json_object(&json!({
            "session": record.order.id,
            "name": record.order.name,
            "file": record.file,
            "started_ms": record.started_ms,
            "state": record.state,
            "directory": dir,
        }))?;
    }
    Ok(Exit::Done)
}

fn state(record: &Record) -> String {
    match &record.state {
        State::Running { .. } => "running".to_owned(),
        State::Paused { .. } => "paused".to_owned(),
        State::Ended { ok: true, .. } => "done".to_owned(),
        State::Ended { words, .. } => match words {
            Some(words) => {
                let short: String = words.chars().take(60).collect();
                format!("failed: {}", short.lines().next().unwrap_or_default())
            }
            None => "failed".to_owned(),
        },
    }
}
