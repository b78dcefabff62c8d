//! From what is stored to what is shown.

use bulkhead_model::run::{End, Gate, GateWhy, Phase, PhaseState, Run, Spent, Status};
use bulkhead_store::{PhaseKey, events::StoredEvent, runs::RunSummary};

use crate::{
    EventView, GateView, GateWhyView, PhaseStatus, PhaseView, RunStatus, RunView, SpentView,
    spec::RunSpec,
};

pub(crate) fn run(run: &Run, spec: &RunSpec, summary: &RunSummary) -> RunView {
    let repo = spec.repo.as_ref();
    let phases = run.phases.iter().zip(run.plan.phases());
    RunView {
        id: run.id.to_string(),
        version: run.version,
        name: spec.workflow.name.clone(),
        status: status(run),
        reason: reason(run),
        repo: repo.map(|repo| repo.source.clone()),
        base: repo.map(|repo| repo.base.clone()),
        base_commit: repo.map(|repo| repo.base_commit.to_string()),
        branch: repo.map(|repo| {
            let name = repo.branch.branch().unwrap_or_else(|| repo.branch.as_str());
            name.to_owned()
        }),
        head: run.head.as_ref().map(ToString::to_string),
        phases: phases
            .map(|(state, plan)| phase(plan.name.as_str(), state))
            .collect(),
        gate: run.open_gate().map(|(index, open)| gate(run, index, open)),
        spent: spent(run.spent),
        created_by: spec.created_by.clone(),
        created_at_ms: summary.created_at_ms,
        updated_at_ms: summary.updated_at_ms,
        ended_at_ms: summary.ended_at_ms,
    }
}

pub(crate) fn status(run: &Run) -> RunStatus {
    match &run.status {
        Status::Created => RunStatus::Created,
        Status::Running if run.open_gate().is_some() => RunStatus::Waiting,
        Status::Running => RunStatus::Running,
        Status::Paused { .. } => RunStatus::Paused,
        Status::Stopping { .. } => RunStatus::Stopping,
        Status::Ended { end } => match end {
            End::Completed => RunStatus::Completed,
            End::Rejected { .. } => RunStatus::Rejected,
            End::Cancelled { .. } => RunStatus::Cancelled,
            End::Failed { .. } => RunStatus::Failed,
        },
    }
}

/// Why the run is where it is, where its status alone does not say it.
fn reason(run: &Run) -> Option<String> {
    match &run.status {
        Status::Ended {
            end: End::Completed,
        } => None,
        Status::Ended { end } => Some(end.to_string()),
        Status::Stopping { then } => Some(format!("ends as {then} as soon as its phase is over")),
        _ => {
            let (index, gate) = run.open_gate()?;
            let name = &run.plan.phases()[index].name;
            Some(match &gate.why {
                GateWhy::Review => format!("phase {name} waits for a person to look at it"),
                GateWhy::Parked { failure } => format!("phase {name} is parked: {failure}"),
            })
        }
    }
}

fn phase(name: &str, phase: &Phase) -> PhaseView {
    let (status, commit) = match &phase.state {
        PhaseState::Waiting => (PhaseStatus::Waiting, None),
        PhaseState::Held => (PhaseStatus::Held, None),
        PhaseState::Dispatched(_) => (PhaseStatus::Queued, None),
        PhaseState::Running(_) => (PhaseStatus::Running, None),
        PhaseState::AtGate(_) => (PhaseStatus::AtGate, None),
        PhaseState::Dropped => (PhaseStatus::Dropped, None),
        PhaseState::Done { commit, .. } => (PhaseStatus::Done, commit.as_ref()),
    };
    PhaseView {
        name: name.to_owned(),
        status,
        attempt: phase.attempts,
        commit: commit.map(ToString::to_string),
        comment: phase.comment.clone(),
        spent: spent(phase.spent),
    }
}

/// A gate without its binding, which takes reading the branch.
pub(crate) fn gate(run: &Run, index: usize, gate: &Gate) -> GateView {
    let plan = &run.plan.phases()[index];
    GateView {
        id: gate.id.to_string(),
        phase: plan.name.to_string(),
        attempt: gate.attempt,
        why: match &gate.why {
            GateWhy::Review => GateWhyView::Review,
            GateWhy::Parked { failure } => GateWhyView::Parked {
                failure: failure.to_string(),
            },
        },
        approvers: plan.gate.approvers.clone(),
        opened_at_ms: gate.opened_ms,
        expires_at_ms: gate.expires_ms,
        binding: None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown to people as dollars")]
fn spent(spent: Spent) -> SpentView {
    SpentView {
        cost_usd: spent.cost_micro_usd as f64 / 1e6,
        turns: spent.turns,
        input_tokens: spent.input_tokens,
        output_tokens: spent.output_tokens,
        time_ms: spent.time_ms,
    }
}

pub(crate) fn event(key: &PhaseKey, event: StoredEvent) -> EventView {
    EventView {
        seq: event.seq,
        phase: key.phase.to_string(),
        attempt: key.attempt,
        at_ms: event.at_ms,
        event: event.payload,
    }
}
