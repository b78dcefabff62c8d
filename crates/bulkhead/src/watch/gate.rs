//! A gate at the terminal: what there is to decide on, the question, and the answer, bound to what was shown.

use anyhow::{Context as _, Result};
use bulkhead_model::{GateId, PhaseName, RunId};
use bulkhead_server::{Answer, BindingView, DecisionRequest, DiffView, GateView, GateWhyView};
use dialoguer::{Input, Select, theme::ColorfulTheme};
use tokio_util::sync::CancellationToken;

use super::Gates;
use crate::{control::Control, output::Output, plain, words::short};

/// How the asking ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Answered,
    /// The gate waits for somebody else, or for later.
    Left,
}

/// More changed files than a person reads at a glance; the rest is counted.
const SHOWN_FILES: usize = 20;

/// Shows the gate, and answers it as `gates` says.
pub(super) async fn answer(
    control: &Control,
    run: RunId,
    opened: &GateView,
    gates: Gates,
    cancel: &CancellationToken,
    output: Output,
) -> Result<Asked> {
    let id: GateId = opened.id.parse().context("reading the gate's id")?;
    // The binding comes before what is shown: if anything changes in between, the answer is void, never wrong.
    let gate = control.gate(run, id).await?;
    let binding = gate
        .binding
        .clone()
        .context("the gate has nothing to bind an answer to")?;
    let phase: PhaseName = gate.phase.parse().context("reading the phase's name")?;
    let diff = match control.diff(run, Some(phase)).await {
        Ok(diff) => Some(diff),
        Err(error) => {
            output.note(format_args!("  What changed cannot be shown: {error:#}"));
            None
        }
    };
    show(&gate, &binding, diff.as_ref(), output);
    let answer = match (gates, &gate.why) {
        (Gates::Stop, _) | (Gates::Approve, GateWhyView::Parked { .. }) => None,
        (Gates::Approve, GateWhyView::Review) => {
            output.note("  Approved, as --yes says.");
            Some(Answer::Approve)
        }
        (Gates::Ask, why) => ask(question(why), diff, cancel).await?,
    };
    let Some(answer) = answer else {
        return Ok(Asked::Left);
    };
    control
        .decide(run, id, DecisionRequest { answer, binding })
        .await?;
    Ok(Asked::Answered)
}

fn show(gate: &GateView, binding: &BindingView, diff: Option<&DiffView>, output: Output) {
    match &gate.why {
        GateWhyView::Review => output.note(format_args!("■ Gate after {}", gate.phase)),
        GateWhyView::Parked { failure } => {
            output.note(format_args!(
                "■ {} did not succeed: {}",
                gate.phase,
                plain::line(failure)
            ));
        }
    }
    if let Some(commit) = &binding.commit {
        output.note(format_args!("  commit  {}", short(commit)));
    }
    let Some(diff) = diff else {
        return;
    };
    for file in diff.files.iter().take(SHOWN_FILES) {
        output.note(format_args!(
            "  {:<8}{}",
            file.change,
            plain::line(&file.path)
        ));
    }
    if let Some(more) = diff
        .files
        .len()
        .checked_sub(SHOWN_FILES)
        .filter(|more| *more > 0)
    {
        output.note(format_args!("  … and {more} more files"));
    }
    if !diff.runs_later.is_empty() {
        output.note("  These would run something on your machine, or for you, later:");
        for path in &diff.runs_later {
            output.note(format_args!("  ⚠ {}", plain::line(path)));
        }
    }
}

const fn question(why: &GateWhyView) -> &'static str {
    match why {
        GateWhyView::Review => "Approve: go on with the next phase",
        GateWhyView::Parked { .. } => "Approve: run the phase again",
    }
}

/// Asks on a thread of its own, because a terminal cannot be read in any other way; an interrupt leaves the gate as it is.
async fn ask(
    approve: &'static str,
    diff: Option<DiffView>,
    cancel: &CancellationToken,
) -> Result<Option<Answer>> {
    let asking = tokio::task::spawn_blocking(move || ask_here(approve, diff.as_ref()));
    tokio::select! {
        answer = asking => answer.context("asking at the terminal")?,
        () = cancel.cancelled() => Ok(None),
    }
}

fn ask_here(approve: &str, diff: Option<&DiffView>) -> Result<Option<Answer>> {
    let theme = ColorfulTheme::default();
    let choices = [
        approve,
        "Show the whole diff",
        "Send back with a comment: the phase runs again",
        "Reject: the run ends",
        "Leave it waiting",
    ];
    loop {
        let select = Select::with_theme(&theme)
            .with_prompt("What now?")
            .items(choices)
            .default(0);
        let chosen = select.interact_opt().context("reading the choice")?;
        return Ok(match chosen {
            Some(0) => Some(Answer::Approve),
            Some(1) => {
                let patch = diff.map_or("(there is no diff)", |diff| diff.patch.as_str());
                dialoguer::console::Term::stderr().write_line(&plain::text(patch))?;
                continue;
            }
            Some(2) => {
                let comment = Input::with_theme(&theme)
                    .with_prompt("What is to be done differently")
                    .interact_text()?;
                Some(Answer::SendBack { comment })
            }
            Some(3) => Some(Answer::Reject),
            _ => None,
        });
    }
}
