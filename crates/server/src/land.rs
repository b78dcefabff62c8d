//! Bringing a run's result into its base.

use std::sync::Arc;

use bulkhead_git::{LandRequest as GitLand, LandStyle, Landed, RefName};
use bulkhead_model::{
    RunId,
    run::{End, Status},
};

use crate::{
    Caller, Code, LandMode, LandOutcome, LandRequest, LandView, Problem, ledger, plane::Plane,
    problem::chain,
};

pub(crate) async fn run(
    plane: &Arc<Plane>,
    caller: &Caller,
    id: RunId,
    request: LandRequest,
) -> Result<LandView, Problem> {
    let run = plane.store.run(id).await?;
    let is_completed = matches!(
        run.status,
        Status::Ended {
            end: End::Completed
        }
    );
    let (Some(head), true) = (&run.head, is_completed) else {
        return Err(Problem::new(
            Code::Conflict,
            "only a completed run with a repository can be landed",
        )
        .remedy("answer its gates first"));
    };
    let spec = plane.spec(id).await?;
    let repo = spec
        .repo
        .ok_or_else(|| Problem::new(Code::Conflict, "the run has no repository"))?;
    let into = request.into.unwrap_or(repo.base);
    let land = GitLand {
        branch: repo.branch.clone(),
        expected: ledger::oid(head).map_err(|error| Problem::internal(&error))?,
        into: target(&into)?,
        style: match request.mode {
            LandMode::Merge => LandStyle::Merge,
            LandMode::Rebase => LandStyle::Rebase,
        },
        message: format!(
            "{}: land run {id}\n\nApproved-by: {}\n",
            spec.workflow.name, caller.name
        ),
        committer_name: plane.config.author_name.clone(),
        committer_email: plane.config.author_email.clone(),
        now_s: plane.now_ms() / 1000,
    };
    let repository = plane.repos.open(plane, &repo.source).await?;
    let landed = repository
        .land(&land)
        .await
        .map_err(|error| Problem::new(Code::CannotLand, chain(&error)))?;
    tracing::info!(run = %id, into, by = caller.name, ?landed, "landed a run");
    Ok(LandView {
        into,
        outcome: match landed {
            Landed::Moved { commit, .. } => LandOutcome::Landed {
                commit: commit.to_string(),
            },
            Landed::AlreadyThere { .. } => LandOutcome::UpToDate,
            Landed::Conflicts { paths } => LandOutcome::Conflicts { files: paths },
        },
    })
}

/// A branch: `HEAD` or a commit is no place to land.
fn target(into: &str) -> Result<RefName, Problem> {
    let unusable =
        into == "HEAD" || into.len() >= 40 && into.bytes().all(|byte| byte.is_ascii_hexdigit());
    match RefName::from_branch(into) {
        Ok(name) if !unusable => Ok(name),
        _ => Err(Problem::new(
            Code::InvalidInput,
            format!("{into:?} is not a branch to land into"),
        )
        .field("into")
        .remedy("name a branch with `into`")),
    }
}
