//! `bulkhead runs`: look at runs, answer their gates, land their results.

mod show;

use anyhow::{Context as _, Result};
use bulkhead_model::{GateId, PhaseName, RunId};
use bulkhead_server::{
    Answer as GateAnswer, DecisionRequest, LandMode, LandOutcome, LandRequest, PauseRequest,
    PhaseStatus, RunQuery, RunView,
};
use futures::StreamExt as _;
use serde_json::json;

use super::{data_dir, run::gates};
use crate::{
    cli::{Answer, Global, Phase, Runs, RunsCommand, Which},
    config::OperatorConfig,
    control::Control,
    embedded::Work,
    environment::Environment,
    failure::{Exit, Misuse},
    interrupt::Interrupt,
    output::Output,
    watch,
    words::{run_id, short},
};

/// In how many runs, newest first, the beginning of an id is looked for.
const LOOKED_AT: u32 = 1_000;

pub(crate) async fn run(
    args: Runs,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    let operator = OperatorConfig::load(global)?;
    let work = work_of(&args.command);
    let control = Control::open(
        &args.remote,
        &data_dir(global)?,
        &operator,
        environment,
        work,
        output,
    )
    .await?;
    let result = perform(&control, args.command, output).await;
    control.leave().await;
    result
}

/// What only looks must not begin to move runs.
fn work_of(command: &RunsCommand) -> Work {
    match command {
        RunsCommand::List { .. }
        | RunsCommand::Show(_)
        | RunsCommand::Logs { .. }
        | RunsCommand::Diff(_) => Work::Look,
        _ => Work::Move,
    }
}

async fn perform(control: &Control, command: RunsCommand, output: Output) -> Result<Exit> {
    match command {
        RunsCommand::List { limit } => list(control, limit, output).await,
        RunsCommand::Show(which) => show::run(&find(control, &which).await?, output),
        RunsCommand::Logs { phase, follow } => logs(control, &phase, follow, output).await,
        RunsCommand::Diff(phase) => diff(control, &phase, output).await,
        RunsCommand::Approve(answer) => decide(control, &answer, GateAnswer::Approve, output).await,
        RunsCommand::Reject(answer) => decide(control, &answer, GateAnswer::Reject, output).await,
        RunsCommand::SendBack { which, comment } => {
            let answer = Answer {
                which,
                commit: None,
            };
            decide(control, &answer, GateAnswer::SendBack { comment }, output).await
        }
        RunsCommand::Cancel(which) => {
            let run = find(control, &which).await?;
            let after = control.cancel(id_of(&run)?).await?;
            changed(control, &after, output).await
        }
        RunsCommand::Pause { which, now } => {
            let run = find(control, &which).await?;
            let after = control
                .pause(id_of(&run)?, PauseRequest { stop: now })
                .await?;
            show::run(&after, output)
        }
        RunsCommand::Resume(which) => {
            let run = find(control, &which).await?;
            control.resume(id_of(&run)?).await?;
            go_on(control, id_of(&run)?, output).await
        }
        RunsCommand::Land {
            which,
            into,
            rebase,
        } => {
            let mode = if rebase {
                LandMode::Rebase
            } else {
                LandMode::Merge
            };
            land(control, &which, LandRequest { into, mode }, output).await
        }
        RunsCommand::StopAll => stop_all(control, output).await,
    }
}

fn id_of(run: &RunView) -> Result<RunId> {
    run.id.parse().context("reading the run's id")
}

/// The run that is meant: by the beginning of its id, or the newest.
async fn find(control: &Control, which: &Which) -> Result<RunView> {
    let query = RunQuery {
        limit: Some(if which.id.is_some() { LOOKED_AT } else { 1 }),
        ..RunQuery::default()
    };
    let mut runs = control.runs(query).await?.items;
    if let Some(beginning) = &which.id {
        runs.retain(|run| run.id.starts_with(beginning.as_str()));
    }
    let found = runs.pop().ok_or_else(|| no_such(which))?;
    if let Some(other) = runs.pop() {
        let what = format!(
            "more than one run's id begins so: {} and {}",
            found.id, other.id
        );
        return Err(Misuse::usage(what).into());
    }
    // The list leaves some things out that the run itself tells.
    control.run(id_of(&found)?).await
}

fn no_such(which: &Which) -> Misuse {
    match &which.id {
        Some(id) => Misuse::usage_hint(format!("there is no run {id}"), "bulkhead runs list"),
        None => Misuse::usage_hint(
            "there is no run yet",
            "bulkhead run WORKFLOW --repo PATH begins one",
        ),
    }
}

async fn list(control: &Control, limit: u32, output: Output) -> Result<Exit> {
    let page = control
        .runs(RunQuery {
            limit: Some(limit),
            ..RunQuery::default()
        })
        .await?;
    show::list(&page.items, output)?;
    output.json_object(&json!({"runs": page.items}))?;
    Ok(Exit::Done)
}

/// The phase that is meant: by its name, or the last one that began.
fn phase_of(run: &RunView, name: Option<&str>) -> Result<PhaseName> {
    let began = |name: &str| {
        run.phases
            .iter()
            .find(|phase| phase.name == name)
            .map(|phase| phase.name.clone())
    };
    let last = || {
        run.phases
            .iter()
            .rev()
            .find(|phase| phase.status != PhaseStatus::Waiting && phase.attempt > 0)
    };
    let found = match name {
        Some(name) => began(name),
        None => last()
            .or(run.phases.first())
            .map(|phase| phase.name.clone()),
    };
    let found = found.ok_or_else(|| {
        let names: Vec<_> = run.phases.iter().map(|phase| phase.name.as_str()).collect();
        Misuse::usage_hint(
            "the run has no such phase",
            format!("its phases are {}", names.join(", ")),
        )
    })?;
    found.parse().context("reading the phase's name")
}

async fn logs(control: &Control, phase: &Phase, follow: bool, output: Output) -> Result<Exit> {
    let run = find(control, &phase.which).await?;
    let (id, name) = (id_of(&run)?, phase_of(&run, phase.phase.as_deref())?);
    let mut writer = show::LogWriter::new(output);
    if follow && !control.works_here() {
        let mut lines = control.follow_log(id, &name);
        while let Some(line) = lines.next().await {
            writer.line(&line?)?;
        }
        writer.finish()?;
        return Ok(Exit::Done);
    }
    let mut after = 0;
    loop {
        let lines = control.logs(id, &name, after).await?;
        let Some(last) = lines.last() else {
            break;
        };
        after = last.seq;
        for line in &lines {
            writer.line(line)?;
        }
    }
    writer.finish()?;
    Ok(Exit::Done)
}

async fn diff(control: &Control, phase: &Phase, output: Output) -> Result<Exit> {
    let run = find(control, &phase.which).await?;
    let name = phase_of(&run, phase.phase.as_deref())?;
    let diff = control.diff(id_of(&run)?, Some(name)).await?;
    show::diff(&diff, output)?;
    Ok(Exit::Done)
}

/// Answers the gate with the binding as it is now, which is said; then goes on, where this process does the work.
async fn decide(
    control: &Control,
    args: &Answer,
    answer: GateAnswer,
    output: Output,
) -> Result<Exit> {
    let run = find(control, &args.which).await?;
    let Some(gate) = &run.gate else {
        let what = format!(
            "run {} waits at no gate: it is {}",
            run_id(&run.id),
            crate::words::standing(&run)
        );
        return Err(Misuse::usage_hint(what, "bulkhead runs list shows which runs wait").into());
    };
    let (id, gate): (RunId, GateId) = (
        id_of(&run)?,
        gate.id.parse().context("reading the gate's id")?,
    );
    let view = control.gate(id, gate).await?;
    let binding = view
        .binding
        .context("the gate has nothing to bind an answer to")?;
    let here = binding.commit.as_deref().unwrap_or("none");
    if let Some(seen) = args
        .commit
        .as_deref()
        .filter(|seen| !here.starts_with(seen))
    {
        return Err(Misuse::usage(format!("the gate is at commit {here}, not at {seen}")).into());
    }
    output.note(format_args!(
        "Answering the gate after {} at commit {}.",
        view.phase,
        short(here)
    ));
    let after = control
        .decide(id, gate, DecisionRequest { answer, binding })
        .await?;
    if after.status.is_final() || !control.works_here() {
        return changed(control, &after, output).await;
    }
    go_on(control, id, output).await
}

/// Waits for the end of what this process had to end; elsewhere it is not ours to wait for.
async fn changed(control: &Control, after: &RunView, output: Output) -> Result<Exit> {
    if !after.status.is_final() && control.works_here() {
        return go_on(control, id_of(after)?, output).await;
    }
    show::run(after, output)
}

async fn go_on(control: &Control, run: RunId, output: Output) -> Result<Exit> {
    if !control.works_here() {
        return show::run(&control.run(run).await?, output);
    }
    let interrupt = Interrupt::listen(output)?;
    let after = watch::follow(control, run, gates(false), &interrupt.token(), output).await?;
    watch::conclude(&after, output)
}

async fn land(
    control: &Control,
    which: &Which,
    request: LandRequest,
    output: Output,
) -> Result<Exit> {
    let run = find(control, which).await?;
    let landed = control.land(id_of(&run)?, request).await?;
    output.json_object(&landed)?;
    let into = &landed.into;
    match &landed.outcome {
        LandOutcome::Landed { commit } => {
            output.words(format_args!("Landed on {into}, now at {}.", short(commit)))?
        }
        LandOutcome::UpToDate => output.words(format_args!("{into} has it all already."))?,
        LandOutcome::Conflicts { files } => {
            output.words(format_args!(
                "Not landed: {into} has moved, and these conflict:"
            ))?;
            for file in files {
                output.words(format_args!("  {}", crate::plain::line(file)))?;
            }
            output.note("Nothing was changed. Merge by hand, or send the phase back.");
            return Ok(Exit::Failed);
        }
    }
    Ok(Exit::Done)
}

async fn stop_all(control: &Control, output: Output) -> Result<Exit> {
    let stopped = control.stop_all().await?;
    for run in &stopped.runs {
        output.words(format_args!("{run} is cancelled."))?;
    }
    output.words(format_args!("{} runs cancelled.", stopped.runs.len()))?;
    output.json_object(&stopped)?;
    Ok(Exit::Done)
}
