//! One session: the plugs around the agent's work, and the report. A phase is a session whose first plug is the
//! sandbox.

use std::sync::Arc;

use bulkhead_host::{ExitStatus, HostError};
use bulkhead_model::{EndReason, Outcome, Protocol, Work};
use tokio::sync::mpsc;

use crate::{
    agent::{Asked, Reason, Run, Stops, Task, work},
    outbox::Outbox,
    plug::{Ctx, Ended, NamedError, PlugError, PlugPassage, Plugs, SessionInfo},
    plugs,
    protocol::ProtocolError,
    wire::{ArtifactChunk, Delivery, Failure, FailureKind, Report},
    words::chain,
};

/// What stood between the order and the phase's success.
#[derive(Debug)]
enum Trouble {
    Stopped(Reason),
    Plug(NamedError),
    Host(HostError),
    /// The agent or command itself, in words.
    Work(FailureKind, String),
}

/// Carries out a phase from the first plug to the last teardown. There is always a report.
pub(crate) async fn perform(
    delivery: Arc<Delivery>,
    artifacts: mpsc::Receiver<ArtifactChunk>,
    out: Outbox,
    stops: &Stops,
) -> Report {
    let order = &delivery.order;
    let session = SessionInfo {
        id: order.run.to_string(),
        dir: None,
        resumed: false,
    };
    let mut ctx = Ctx::new(session, out, stops.token().clone());
    let plugs = plugs::of_phase(&delivery, artifacts);
    let task = |ctx: &Ctx| Task::of(order, &ctx.agent.env);
    let asked = Asked::nothing();
    carry_out("the phase", plugs, &mut ctx, asked, stops, task).await
}

/// Carries out any session: the plugs around the agent's work, and all teardowns. `what` is what it is to people.
pub(crate) async fn carry_out(
    what: &'static str,
    mut plugs: Plugs,
    ctx: &mut Ctx,
    mut asked: Asked,
    stops: &Stops,
    task: impl FnOnce(&Ctx) -> Task + Send,
) -> Report {
    let mut run = None;
    let attempt = attempt(&mut plugs, ctx, &mut asked, stops, task, &mut run);
    let trouble = attempt.await.err();
    let paused = matches!(trouble, Some(Trouble::Stopped(Reason::Paused)));
    let ended = ended(run.as_ref(), trouble.as_ref());
    for error in plugs.teardown(ctx, ended).await {
        ctx.out.say(&chain(&error)).await;
    }
    let outcome = ctx.results.outcome.take();
    let conversation = run.as_ref().and_then(|run| run.driven.conversation.clone());
    let trouble = trouble.filter(|_| !paused);
    Report {
        failure: trouble.map(|trouble| failure(what, trouble, outcome.as_ref())),
        outcome,
        head: ctx.results.head.take(),
        usage: run.as_ref().and_then(|run| run.driven.usage),
        result: run.and_then(closing_words),
        artifacts: std::mem::take(&mut ctx.results.artifacts),
        dropped_log_bytes: ctx.out.dropped_bytes(),
        conversation: conversation.or_else(|| ctx.results.conversation.take()),
        paused,
    }
}

/// Begins the plugs, lets the agent work, and lets the plugs finish. Stops between the agent and the plugs at
/// once; the agent itself is stopped with a grace time.
async fn attempt(
    plugs: &mut Plugs,
    ctx: &mut Ctx,
    asked: &mut Asked,
    stops: &Stops,
    task: impl FnOnce(&Ctx) -> Task + Send,
    run: &mut Option<Run>,
) -> Result<(), Trouble> {
    unless_stopped(stops, plugs.begin(ctx)).await?;
    let host = ctx
        .host()
        .map_err(|error| Trouble::Plug(NamedError::of("agent", error)))?;
    ctx.out.summary(ctx.summary(&*host)).await;
    let (task, out) = (task(ctx), ctx.out.clone());
    let mut passage = PlugPassage { plugs, ctx };
    let worked = work(&task, &*host, &out, &mut passage, asked, stops).await;
    let worked = run.insert(worked.map_err(Trouble::Host)?);
    if task.resume.is_some() && !worked.driven.resumed && task.loads_by_protocol() {
        out.say("the agent could not take its conversation up again, so it began a new one")
            .await;
    }
    if let Some(reason) = stops.reason() {
        return Err(Trouble::Stopped(reason.clone()));
    }
    judge(&task.work, worked)?;
    plugs.clear_away().await;
    unless_stopped(stops, plugs.finish(ctx)).await
}

async fn unless_stopped(
    stops: &Stops,
    step: impl Future<Output = Result<(), NamedError>>,
) -> Result<(), Trouble> {
    tokio::select! {
        done = step => done.map_err(Trouble::Plug),
        () = stops.stopped() => {
            let reason = stops.reason().cloned();
            Err(Trouble::Stopped(reason.unwrap_or(Reason::Cancelled)))
        }
    }
}

/// Whether the work went well: by the agent's word where its protocol has one, and by its exit.
fn judge(order: &Work, run: &mut Run) -> Result<(), Trouble> {
    let failed = |words: String| Err(Trouble::Work(FailureKind::Work, words));
    match run.broken.take() {
        Some(ProtocolError::Plug(error)) => return Err(Trouble::Plug(error)),
        Some(broken) => return Err(Trouble::Work(FailureKind::Protocol, chain(&broken))),
        None => {}
    }
    let (name, protocol) = match order {
        Work::Command { .. } => ("the command", Protocol::Plain),
        Work::Agent { agent, .. } => ("the agent", agent.protocol),
    };
    // An agent that was told by an end of file to leave may leave as it likes.
    let status_counts = protocol != Protocol::Acp && !run.overstayed;
    match &run.driven.finished {
        Some((false, text)) => failed(match text {
            Some(text) => format!("{name} says that it failed: {text}"),
            None => format!("{name} says that it failed"),
        }),
        None if protocol != Protocol::Plain => {
            failed(format!("{name} {} before it gave a result", run.status))
        }
        _ if status_counts && !run.status.success() => failed(format!("{name} {}", run.status)),
        _ => Ok(()),
    }
}

/// How the sandbox is told that it is over. A success is an exit with 0, also where the agent had to be shown
/// the door after its result.
fn ended(run: Option<&Run>, trouble: Option<&Trouble>) -> Ended {
    match (trouble, run) {
        (None, _) => Ended::Finished(ExitStatus::Code(0)),
        (Some(Trouble::Stopped(Reason::Idle)), _) => Ended::Idle,
        (Some(Trouble::Stopped(Reason::Paused)), _) => Ended::Paused,
        (Some(Trouble::Stopped(_)), _) => Ended::Cancelled,
        (Some(Trouble::Work(..)), Some(run)) => Ended::Finished(run.status),
        // Helpers failed: where a limit of the sandbox is behind it, the kernel's counters show it.
        (Some(_), _) => Ended::Finished(ExitStatus::Code(1)),
    }
}

fn failure(what: &str, trouble: Trouble, outcome: Option<&Outcome>) -> Failure {
    let limit = outcome.map(|outcome| outcome.reason).filter(is_limit);
    let (kind, words) = explain(trouble);
    match limit {
        // What the limit broke on its way says less than the limit, but where.
        Some(reason) => Failure {
            kind: FailureKind::Limit,
            message: format!("{what} {reason} ({words})"),
        },
        None => Failure {
            kind,
            message: words,
        },
    }
}

fn explain(trouble: Trouble) -> (FailureKind, String) {
    match trouble {
        Trouble::Stopped(Reason::Idle) => (
            FailureKind::Limit,
            "there was no output for too long".to_owned(),
        ),
        Trouble::Stopped(Reason::TimedOut(limit)) => (
            FailureKind::Limit,
            format!("it took longer than its limit of {limit:?}"),
        ),
        Trouble::Stopped(Reason::Cancelled | Reason::Paused) => {
            (FailureKind::Cancelled, "it was cancelled".to_owned())
        }
        Trouble::Stopped(Reason::ExecutorGone) => {
            (FailureKind::Cancelled, "its executor went away".to_owned())
        }
        Trouble::Stopped(Reason::Cap(words)) => (FailureKind::Cap, words),
        Trouble::Work(kind, words) => (kind, words),
        Trouble::Plug(error) => {
            let plug = error.plug.clone();
            match &error.source {
                PlugError::Host(host) if is_refusal(host) => (FailureKind::Refused, chain(host)),
                PlugError::Refused(_) => (FailureKind::Refused, chain(&error)),
                _ => (FailureKind::Plug { plug }, chain(&error)),
            }
        }
        Trouble::Host(error) if is_refusal(&error) => (FailureKind::Refused, chain(&error)),
        Trouble::Host(error) => (FailureKind::Work, chain(&error)),
    }
}

const fn is_refusal(error: &HostError) -> bool {
    matches!(error, HostError::Refused(_) | HostError::Connect { .. })
}

const fn is_limit(reason: &EndReason) -> bool {
    matches!(
        reason,
        EndReason::Oom
            | EndReason::PidsLimit
            | EndReason::DiskFull
            | EndReason::Timeout
            | EndReason::Idle
    )
}

fn closing_words(run: Run) -> Option<String> {
    let own = run.driven.finished.and_then(|(_, text)| text);
    own.or(run.driven.last_message)
}
