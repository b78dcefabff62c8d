//! How a run comes to be: its repository is opened, its workflow is read from the base commit, its branch is made.

use std::sync::Arc;

use bulkhead_git::RefName;
use bulkhead_model::{
    Digest, RunId,
    run::{Plan, Repository, Run, RunEvent, Status},
    workflow::DEFAULT_PATH,
};
use bulkhead_store::runs::{Idempotency, NewRun as StoredNewRun};
use uuid::Uuid;

use crate::{
    Caller, Code, NewRun, Problem, WorkflowSource, ledger,
    plane::Plane,
    problem::chain,
    resolve,
    spec::{RepoSpec, RunSpec},
};

/// The largest workflow file.
const WORKFLOW_BYTES: u64 = 1 << 20;

/// Makes a run and returns its id; it starts by itself.
pub(crate) async fn run(
    plane: &Arc<Plane>,
    caller: &Caller,
    new: NewRun,
) -> Result<RunId, Problem> {
    let id = RunId::from_uuid(Uuid::now_v7());
    let repo = match &new.repo {
        Some(source) => Some(repo_spec(plane, id, source, &new).await?),
        None => None,
    };
    let kind = match repo {
        Some(_) => Repository::Branch,
        None => Repository::None,
    };
    let (name, text) = workflow_text(plane, repo.as_ref(), new.workflow.as_ref()).await?;
    let resolved = resolve::workflow(&name, &text, &new, &plane.config)?;
    let plan = resolved.workflow.plan(kind).map_err(|error| {
        Problem::new(Code::InvalidWorkflow, error.to_string()).field("workflow")
    })?;
    let spec = RunSpec {
        created_by: caller.name.clone(),
        repo,
        inputs: resolved.inputs,
        workflow: resolved.workflow,
        agents: resolved.agents,
    };
    let id = store(plane, caller, &new, id, plan, &spec).await?;
    plane.fail_point("create.after_commit");
    let starter = Arc::clone(plane);
    plane.tasks.spawn(async move {
        // Where this fails the reconciler tries again.
        if let Err(error) = start(&starter, id).await {
            tracing::warn!(run = %id, %error, "a run could not be started yet");
        }
    });
    Ok(id)
}

async fn store(
    plane: &Plane,
    caller: &Caller,
    new: &NewRun,
    id: RunId,
    plan: Plan,
    spec: &RunSpec,
) -> Result<RunId, Problem> {
    let run = Run::new(id, plan);
    let request_hash = Digest::of_value("new-run", new)
        .map_err(|error| Problem::internal(&error))?
        .to_string();
    let idempotency = new.idempotency_key.as_deref().map(|key| Idempotency {
        key,
        request_hash: &request_hash,
    });
    plane.fail_point("create.before_commit");
    let created = plane
        .store
        .create_run(StoredNewRun {
            name: &spec.workflow.name,
            spec,
            run: &run,
            idempotency,
            actor: &caller.name,
            now_ms: plane.now_ms(),
        })
        .await?;
    Ok(created.id())
}

/// Makes the run's branch and starts it. Repeating it is harmless: the branch is made only where it is not
/// there, and a run starts once.
pub(crate) async fn start(plane: &Arc<Plane>, id: RunId) -> Result<(), Problem> {
    let run = plane.store.run(id).await?;
    if run.status != Status::Created {
        return Ok(());
    }
    let spec = plane.spec(id).await?;
    let mut base = None;
    if let Some(repo) = &spec.repo {
        let repository = plane.repos.open(plane, &repo.source).await?;
        let commit = ledger::oid(&repo.base_commit).map_err(|error| Problem::internal(&error))?;
        plane.fail_point("branch.before_making");
        repository
            .create_branch(&repo.branch, &commit)
            .await
            .map_err(|error| Problem::new(Code::Conflict, chain(&error)).field("branch"))?;
        plane.fail_point("branch.after_making");
        base = Some(repo.base_commit.clone());
    }
    match plane.post(id, &RunEvent::Start { base }, "server").await {
        Ok(_) => Ok(()),
        Err(bulkhead_store::runs::ApplyError::Refused(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn repo_spec(
    plane: &Plane,
    id: RunId,
    source: &str,
    new: &NewRun,
) -> Result<RepoSpec, Problem> {
    let source = canonical(source)?;
    let repository = plane.repos.open(plane, &source).await?;
    let base = new.base.clone().unwrap_or_else(|| "HEAD".to_owned());
    let commit = repository.resolve(&base).await.map_err(|error| {
        Problem::new(Code::InvalidInput, chain(&error))
            .field("base")
            .remedy("name a branch, tag or commit of the repository")
    })?;
    let branch = new
        .branch
        .clone()
        .unwrap_or_else(|| format!("bulkhead/{id}"));
    let branch = RefName::from_branch(&branch)
        .map_err(|error| Problem::new(Code::InvalidInput, error.to_string()).field("branch"))?;
    Ok(RepoSpec {
        source,
        base,
        base_commit: ledger::commit(&commit).map_err(|error| Problem::internal(&error))?,
        branch,
    })
}

/// A path is made absolute once, so that it means the same after a restart from another directory.
fn canonical(source: &str) -> Result<String, Problem> {
    if source.contains("://") {
        return Ok(source.to_owned());
    }
    let path = std::fs::canonicalize(source).map_err(|error| {
        Problem::new(Code::InvalidInput, format!("cannot open {source}: {error}"))
            .field("repo")
            .remedy("name a git repository on the server's machine, or a URL")
    })?;
    path.into_os_string().into_string().map_err(|path| {
        Problem::new(
            Code::InvalidInput,
            format!("{} is not UTF-8", path.display()),
        )
        .field("repo")
    })
}

/// The workflow's text and what to call it in errors. With a repository it is read from the base commit only
/// (R1), or given by the caller as text.
async fn workflow_text(
    plane: &Plane,
    repo: Option<&RepoSpec>,
    source: Option<&WorkflowSource>,
) -> Result<(String, String), Problem> {
    let path = match source {
        Some(WorkflowSource::Text(text)) => return Ok(("workflow".to_owned(), text.clone())),
        Some(WorkflowSource::Path(path)) => path.as_str(),
        None => DEFAULT_PATH,
    };
    let missing = |detail: String| {
        Problem::new(Code::InvalidWorkflow, detail)
            .field("workflow")
            .remedy("commit the workflow to the base branch, or name its path with `workflow`")
    };
    let Some(repo) = repo else {
        return Err(missing(
            "a run without a repository needs the workflow's text".to_owned(),
        ));
    };
    let repository = plane.repos.open(plane, &repo.source).await?;
    let commit = ledger::oid(&repo.base_commit).map_err(|error| Problem::internal(&error))?;
    let bytes = repository
        .read_file(&commit, path, WORKFLOW_BYTES)
        .await
        .map_err(|error| missing(chain(&error)))?
        .ok_or_else(|| {
            missing(format!(
                "there is no {path} at commit {} of {}",
                repo.base_commit, repo.source
            ))
        })?;
    let text = String::from_utf8(bytes).map_err(|_| missing(format!("{path} is not UTF-8")))?;
    Ok((path.to_owned(), text))
}
