//! Telling people that a gate waits (R15): a webhook through the one egress decision, or a command of the
//! operator's. Tried again after a pause when it fails; nothing else ever waits for it.

use std::{process::Stdio, sync::Arc, time::Duration};

use bulkhead_model::{
    GateId, RunId,
    gate::Notifier,
    run::{GateWhy, Run},
};
use serde::Serialize;
use tokio::{io::AsyncWriteExt as _, process::Command};

use bulkhead_store::Error as StoreError;

use crate::{NotifyCommand, plane::Plane, problem::chain, webhook};

const ATTEMPTS: u32 = 12;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What a webhook's body and a command's standard input say.
#[derive(Debug, Serialize)]
pub(crate) struct Notice {
    event: &'static str,
    run: String,
    name: String,
    phase: String,
    attempt: u32,
    gate: String,
    /// `review`, or `parked` with the failure.
    why: &'static str,
    failure: Option<String>,
    opened_at_ms: i64,
    expires_at_ms: Option<i64>,
}

/// Tells everybody whom the gate's policy names, in a task of its own: tried again until it is told, the gate is
/// answered, or the attempts run out. A restart begins anew with whatever was not told.
pub(crate) fn begin(plane: &Arc<Plane>, run: RunId, gate: GateId) {
    let owner = Arc::clone(plane);
    plane.tasks.spawn(async move {
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=ATTEMPTS {
            match tell_all(&owner, run, gate).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%run, %gate, attempt, error, "a notice was not delivered")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = owner.closing.cancelled() => return,
            }
        }
    });
}

/// Begins the notice of a gate that was open when this process started, unless it was told before.
pub(crate) async fn begin_again(
    plane: &Arc<Plane>,
    run: RunId,
    gate: GateId,
) -> Result<(), StoreError> {
    if plane
        .store
        .setting::<i64>(&told_name(run, gate))
        .await?
        .is_none()
    {
        begin(plane, run, gate);
    }
    Ok(())
}

/// The run's id in the middle makes it go with its run.
fn told_name(run: RunId, gate: GateId) -> String {
    format!("notice/{run}/{gate}")
}

async fn tell_all(plane: &Plane, run: RunId, gate: GateId) -> Result<(), String> {
    let state = plane.store.run(run).await.map_err(|error| chain(&error))?;
    let Some((index, _)) = state.open_gate().filter(|(_, open)| open.id == gate) else {
        return Ok(());
    };
    let notifiers = &state.plan.phases()[index].gate.notify;
    if notifiers.is_empty() {
        return Ok(());
    }
    let Some(notice) = notice(plane, &state, gate)
        .await
        .map_err(|error| chain(&error))?
    else {
        return Ok(());
    };
    let mut failed = Vec::new();
    for notifier in notifiers {
        plane.fail_point("notify.before_telling");
        if let Err(error) = tell(plane, notifier, &notice).await {
            failed.push(error);
        }
        plane.fail_point("notify.after_telling");
    }
    if !failed.is_empty() {
        return Err(failed.join("; "));
    }
    let now = plane.now_ms();
    let told = plane
        .store
        .set_setting(&told_name(run, gate), &now, now)
        .await;
    told.map_err(|error| chain(&error))
}

async fn notice(plane: &Plane, run: &Run, id: GateId) -> Result<Option<Notice>, StoreError> {
    let Some((index, gate)) = run.open_gate().filter(|(_, gate)| gate.id == id) else {
        return Ok(None);
    };
    let (why, failure) = match &gate.why {
        GateWhy::Review => ("review", None),
        GateWhy::Parked { failure } => ("parked", Some(failure.to_string())),
    };
    Ok(Some(Notice {
        event: "gate_waiting",
        run: run.id.to_string(),
        name: plane.spec(run.id).await?.workflow.name,
        phase: run.plan.phases()[index].name.to_string(),
        attempt: gate.attempt,
        gate: id.to_string(),
        why,
        failure,
        opened_at_ms: gate.opened_ms,
        expires_at_ms: gate.expires_ms,
    }))
}

async fn tell(plane: &Plane, notifier: &Notifier, notice: &Notice) -> Result<(), String> {
    let body = serde_json::to_vec(notice).map_err(|error| error.to_string())?;
    match notifier {
        Notifier::Webhook(url) => webhook::post(plane, url, body).await,
        Notifier::Command(name) => match plane.config.notify.commands.get(name) {
            Some(command) => run_command(name, command, &body).await,
            None => Err(format!(
                "the workflow names the notifier {name:?}, which this server's configuration does not have"
            )),
        },
    }
}

async fn run_command(name: &str, command: &NotifyCommand, body: &[u8]) -> Result<(), String> {
    let [program, args @ ..] = command.argv.as_slice() else {
        return Err(format!("the notifier {name:?} has no command"));
    };
    let failed = |error: std::io::Error| format!("the notifier {name:?} failed: {error}");
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input is not at fault.
        drop(stdin.write_all(body).await);
    }
    let limit = command.time_limit.min(Duration::from_secs(60));
    match tokio::time::timeout(limit, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("the notifier {name:?} ended with {status}")),
        Ok(Err(error)) => Err(failed(error)),
        Err(_elapsed) => Err(format!(
            "the notifier {name:?} took more than {} s",
            limit.as_secs()
        )),
    }
}
