//! What phases changed, read from git objects (R15).

use bulkhead_git::{ChangeKind, Complete, FileChange, PhaseDiff, Repository, shown};
use bulkhead_model::{
    CommitId, Digest, PhaseName, RunId,
    run::{PhaseState, Run},
};

use crate::{
    Code, DiffView, FileChangeView, Problem, ledger, phase::branch_tip, plane::Plane,
    problem::chain, spec::RepoSpec,
};

/// The part of a patch that is shown.
const PATCH_BYTES: u64 = 4 << 20;

/// Names exactly what a phase at its gate changed: what an answer is bound to.
pub(crate) async fn digest(
    plane: &Plane,
    run: &Run,
    index: usize,
    head: Option<&CommitId>,
) -> Result<Digest, Problem> {
    let spec = plane.spec(run.id).await?;
    let (Some(repo), Some(head)) = (&spec.repo, head) else {
        return Ok(Digest::of_bytes(b""));
    };
    let from = start_of(run, index, repo);
    let (from, to) = (oid(&from)?, oid(head)?);
    let repository = plane.repos.open(plane, &repo.source).await?;
    let digest = repository
        .diff_digest(&from, &to)
        .await
        .map_err(|error| unreadable(&error))?;
    Ok(digest.parse()?)
}

/// The diff of one phase, or of the whole run.
pub(crate) async fn show(
    plane: &Plane,
    run: RunId,
    phase: Option<PhaseName>,
) -> Result<DiffView, Problem> {
    let run = plane.store.run(run).await?;
    let spec = plane.spec(run.id).await?;
    let repo = spec.repo.ok_or_else(|| {
        Problem::new(
            Code::Conflict,
            "the run has no repository, so it has no diff",
        )
        .remedy("look at its artifacts")
    })?;
    let tip = branch_tip(plane, run.id)
        .await
        .map_err(|error| Problem::new(Code::Upstream, error))?;
    let (from, to) = match phase {
        None => (
            repo.base_commit.clone(),
            tip.unwrap_or_else(|| repo.base_commit.clone()),
        ),
        Some(name) => span(&run, &repo, &name, tip)?,
    };
    let repository = plane.repos.open(plane, &repo.source).await?;
    let diff = repository
        .phase_diff(&oid(&from)?, &oid(&to)?, PATCH_BYTES)
        .await
        .map_err(|error| unreadable(&error))?;
    view(&repository, diff).await
}

/// From where a phase began to where it left the branch, or to where the branch is while it is not done.
fn span(
    run: &Run,
    repo: &RepoSpec,
    name: &PhaseName,
    tip: Option<CommitId>,
) -> Result<(CommitId, CommitId), Problem> {
    let index = run.plan.phases().iter().position(|plan| plan.name == *name);
    let index = index.ok_or_else(|| {
        Problem::new(
            Code::NotFound,
            format!("run {} has no phase {name}", run.id),
        )
        .field("phase")
    })?;
    let from = start_of(run, index, repo);
    let to = match &run.phases[index].state {
        PhaseState::Done { commit, .. } => commit.clone(),
        PhaseState::Waiting | PhaseState::Dropped => None,
        _ => tip,
    };
    let to = to.unwrap_or_else(|| from.clone());
    Ok((from, to))
}

/// The commit that a phase began from: where the one before it left the branch.
fn start_of(run: &Run, index: usize, repo: &RepoSpec) -> CommitId {
    let before = run.phases[..index].iter().rev();
    let mut done = before.filter_map(|phase| match &phase.state {
        PhaseState::Done { commit, .. } => commit.clone(),
        _ => None,
    });
    done.next().unwrap_or_else(|| repo.base_commit.clone())
}

async fn view(repository: &Repository, diff: PhaseDiff) -> Result<DiffView, Problem> {
    let later = repository
        .runs_later(&diff)
        .await
        .map_err(|error| unreadable(&error))?;
    Ok(DiffView {
        from: Some(diff.from.to_string()),
        to: Some(diff.to.to_string()),
        files: diff.files.iter().map(change).collect(),
        runs_later: later
            .iter()
            .map(|later| format!("{}: {}", shown(&later.path), later.why))
            .collect(),
        truncated: diff.patch_complete == Complete::Cut,
        patch: String::from_utf8_lossy(&diff.patch).into_owned(),
    })
}

fn change(change: &FileChange) -> FileChangeView {
    FileChangeView {
        path: change.shown(),
        change: match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Deleted => "deleted",
            ChangeKind::Renamed => "renamed",
            ChangeKind::Copied => "copied",
            _ => "changed",
        }
        .to_owned(),
    }
}

fn oid(commit: &CommitId) -> Result<bulkhead_git::Oid, Problem> {
    ledger::oid(commit).map_err(|error| Problem::internal(&error))
}

fn unreadable(error: &bulkhead_git::Error) -> Problem {
    Problem::new(Code::Internal, chain(error))
}
