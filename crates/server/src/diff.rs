//! What phases changed, read from git objects (R15).

use bulkhead_model::{
    CommitId,
    run::{PhaseState, Run},
};

use crate::{Problem, plane::Plane};

/// Names exactly what a phase at its gate changed: what an answer is bound to.
pub(crate) async fn of_phase(
    plane: &Plane,
    run: &Run,
    index: usize,
    head: Option<&CommitId>,
) -> Result<String, Problem> {
    let from = start_of(plane, run, index).await?;
    Ok(format!("{from:?}..{head:?}"))
}

/// The commit that the phase began from: where the one before it left the branch.
pub(crate) async fn start_of(
    plane: &Plane,
    run: &Run,
    index: usize,
) -> Result<Option<CommitId>, Problem> {
    let before = run.phases[..index]
        .iter()
        .rev()
        .find_map(|phase| match &phase.state {
            PhaseState::Done { commit, .. } => commit.clone(),
            _ => None,
        });
    match before {
        Some(commit) => Ok(Some(commit)),
        None => Ok(plane.spec(run.id).await?.repo.map(|repo| repo.base_commit)),
    }
}

pub(crate) async fn show(
    _plane: &Plane,
    _run: bulkhead_model::RunId,
    _phase: Option<bulkhead_model::PhaseName>,
) -> Result<crate::DiffView, Problem> {
    Err(Problem::new(
        crate::Code::Internal,
        "diffs are not built yet",
    ))
}
