//! Gates: what is shown, what an answer is bound to, and who may answer (R2, case 62).

use std::sync::Arc;

use bulkhead_model::{
    GateId, RunId,
    compose::approved_phase,
    gate::{Answer as GateAnswer, Approver, Binding, Decision, Person, Principal},
    run::{Gate, Run, RunEvent},
};

use crate::{
    Answer, BindingView, Caller, Code, DecisionRequest, GateView, Problem, diff, plane::Plane, show,
};

/// A waiting gate with its binding, computed from the branch as it is now.
pub(crate) async fn show(plane: &Plane, run: RunId, gate: GateId) -> Result<GateView, Problem> {
    let run = plane.store.run(run).await?;
    let (index, open) = open_gate(&run, gate)?;
    let binding = binding(plane, &run, index).await?;
    let mut view = show::gate(&run, index, open);
    view.binding = Some(BindingView::from(&binding));
    Ok(view)
}

/// Answers a gate. An answer to what is no longer so is void; the same answer twice is one.
pub(crate) async fn decide(
    plane: &Arc<Plane>,
    caller: &Caller,
    id: RunId,
    gate: GateId,
    request: DecisionRequest,
) -> Result<Run, Problem> {
    let run = plane.store.run(id).await?;
    let shown = Binding::try_from(&request.binding)?;
    // A repeated answer comes to a gate that is closed by now: the run's machine knows it by its id.
    let (policy, now) = match open_gate(&run, gate) {
        Ok((index, _)) => {
            let policy = run.plan.phases()[index].gate.clone();
            (policy, binding(plane, &run, index).await?)
        }
        Err(missing) if run.answered.iter().all(|answered| answered.gate != gate) => {
            return Err(missing);
        }
        Err(_) => (bulkhead_model::gate::GatePolicy::default(), shown.clone()),
    };
    let person = Principal::Person(Person {
        token: caller.name.clone(),
        scopes: caller.scopes.clone(),
    });
    let by = Approver::of(&person, &policy)
        .map_err(|error| Problem::new(Code::Forbidden, error.to_string()))?;
    let decision = RunEvent::Decision(Decision {
        gate,
        answer: request.answer.into(),
        by,
        shown,
        now,
    });
    Ok(plane.post(id, &decision, &caller.name).await?)
}

fn open_gate(run: &Run, gate: GateId) -> Result<(usize, &Gate), Problem> {
    run.open_gate()
        .filter(|(_, open)| open.id == gate)
        .ok_or_else(|| {
            Problem::new(
                Code::NotFound,
                format!("gate {gate} of run {} is not open", run.id),
            )
            .remedy("look at the run again: the gate was answered, or it expired")
        })
}

/// Commit, diff, next phase and effective policy, all read now.
async fn binding(plane: &Plane, run: &Run, index: usize) -> Result<Binding, Problem> {
    let spec = plane.spec(run.id).await?;
    let commit = crate::phase::branch_tip(plane, run.id)
        .await
        .map_err(|error| Problem::new(Code::Upstream, error))?;
    let diff = diff::digest(plane, run, index, commit.as_ref()).await?;
    let next = approved_phase(&spec.workflow, run);
    let agent = next.and_then(|next| {
        let position = spec
            .workflow
            .phases
            .iter()
            .position(|phase| phase.name == next.name)?;
        spec.agents.get(position)
    });
    Binding::of(commit, diff, next, &agent).map_err(|error| Problem::internal(&error))
}

impl From<&Binding> for BindingView {
    fn from(binding: &Binding) -> Self {
        Self {
            commit: binding.commit.as_ref().map(ToString::to_string),
            diff: binding.diff.to_string(),
            next: binding.next.to_string(),
            policy: binding.policy.to_string(),
        }
    }
}

impl TryFrom<&BindingView> for Binding {
    type Error = Problem;

    fn try_from(view: &BindingView) -> Result<Self, Problem> {
        let malformed = |error: bulkhead_model::ids::InvalidId| {
            Problem::new(Code::InvalidInput, error.to_string())
                .field("binding")
                .remedy("hand back the binding of the gate as it was shown")
        };
        Ok(Self {
            commit: view
                .commit
                .as_ref()
                .map(|commit| commit.parse())
                .transpose()
                .map_err(malformed)?,
            diff: view.diff.parse().map_err(malformed)?,
            next: view.next.parse().map_err(malformed)?,
            policy: view.policy.parse().map_err(malformed)?,
        })
    }
}

impl From<Answer> for GateAnswer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Approve => Self::Approve,
            Answer::Reject => Self::Reject,
            Answer::SendBack { comment } => Self::SendBack { comment },
        }
    }
}
