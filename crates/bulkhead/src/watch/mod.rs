//! Follows a run: shows what happens, answers its gates or asks, and says how it stands in the end.

mod gate;
mod progress;

use anyhow::Result;
use bulkhead_model::RunId;
use bulkhead_server::{GateWhyView, News, RunStatus, RunView};
use futures::StreamExt as _;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::{gate::Asked, progress::Progress};
use crate::{
    control::Control,
    failure::Exit,
    output::Output,
    words::{run_id, standing},
};

/// What is done at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gates {
    /// Approve where the phase succeeded; stop where it did not.
    Approve,
    /// Ask the person at the terminal.
    Ask,
    /// Stop there.
    Stop,
}

/// The outcome for programs.
#[derive(Serialize)]
struct Outcome<'a> {
    run: &'a RunView,
    exit_code: u8,
}

/// Follows the run until it has ended or rests at a gate, and says so. The first interrupt cancels it.
pub(crate) async fn follow(
    control: &Control,
    run: RunId,
    gates: Gates,
    cancel: &CancellationToken,
    output: Output,
) -> Result<RunView> {
    let mut progress = Progress::new(output);
    let mut news = control.follow(run);
    let mut seen_gate = None;
    let mut cancelling = false;
    loop {
        let next = tokio::select! {
            next = news.next() => next,
            () = cancel.cancelled(), if !cancelling => {
                cancelling = true;
                control.cancel(run).await?;
                continue;
            }
        };
        let Some(next) = next else {
            return control.run(run).await;
        };
        let view = match next? {
            News::Run { run } => run,
            other => {
                progress.show(&other);
                continue;
            }
        };
        progress.run(&view);
        if view.status.is_final() || view.status == RunStatus::Paused {
            return Ok(*view);
        }
        let Some(opened) = view
            .gate
            .as_ref()
            .filter(|_| view.status == RunStatus::Waiting && !cancelling)
        else {
            continue;
        };
        if seen_gate.as_deref() == Some(opened.id.as_str()) {
            continue;
        }
        seen_gate = Some(opened.id.clone());
        if gate::answer(control, run, opened, gates, cancel, output).await? == Asked::Left {
            return Ok(*view);
        }
    }
}

/// Says how the run stands, in words and for programs.
pub(crate) fn conclude(run: &RunView, output: Output) -> Result<Exit> {
    let exit = say(run, output);
    output.json_object(&Outcome {
        run,
        exit_code: exit.code(),
    })?;
    Ok(exit)
}

/// Says how the run stands, with what can be done next, and which exit code that is.
pub(crate) fn say(run: &RunView, output: Output) -> Exit {
    let exit = exit_of(run);
    let id = run_id(&run.id);
    output.note(format_args!("Run {id} {}.{}", standing(run), reason(run)));
    advise(run, exit, output);
    exit
}

/// What a person can do next.
fn advise(run: &RunView, exit: Exit, output: Output) {
    let id = run_id(&run.id);
    match (exit, &run.branch, &run.gate) {
        (Exit::Done, Some(branch), _) => {
            output.note(format_args!("  Its commits are on {branch}. To bring them onto the base: bulkhead runs land {id}"));
        }
        (Exit::Gate | Exit::Failed, _, Some(_)) => {
            output.note(format_args!(
                "  Look:   bulkhead runs diff {id} · bulkhead runs logs {id}"
            ));
            output.note(format_args!(
                "  Go on:  bulkhead runs approve {id} · send-back {id} --comment TEXT · reject {id}"
            ));
        }
        _ => {}
    }
}

fn reason(run: &RunView) -> String {
    match (&run.gate, &run.reason) {
        (Some(gate), _) => match &gate.why {
            GateWhyView::Parked { failure } => format!(" {}", crate::plain::line(failure)),
            GateWhyView::Review => String::new(),
        },
        (None, Some(reason)) => format!(" {}", crate::plain::line(reason)),
        (None, None) => String::new(),
    }
}

fn exit_of(run: &RunView) -> Exit {
    match (run.status, &run.gate) {
        (RunStatus::Completed, _) => Exit::Done,
        (RunStatus::Waiting, Some(gate)) if gate.why == GateWhyView::Review => Exit::Gate,
        (RunStatus::Paused, _) => Exit::Gate,
        _ => Exit::Failed,
    }
}
