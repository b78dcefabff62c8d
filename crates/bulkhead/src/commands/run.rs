//! `bulkhead run`: a workflow against a repository, with the control plane in this process or on a server.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bulkhead_model::RunId;
use bulkhead_sandbox::{Engine, EngineConfig};
use bulkhead_server::{NewRun, WorkflowSource};

use super::{data_dir, sandbox_dir};
use crate::{
    cli::{Global, Run},
    config::OperatorConfig,
    control::Control,
    embedded::{self, Answering, Work},
    environment::Environment,
    failure::{Exit, Misuse},
    interrupt::Interrupt,
    output::{self, Output},
    watch::{self, Gates},
};

pub(crate) async fn run(
    args: Run,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    let operator = OperatorConfig::load(global)?;
    let data_dir = data_dir(global)?;
    if args.remote.server.is_some() {
        return elsewhere(&args, &operator, &data_dir, environment, output).await;
    }
    let new = new_run(&args)?;
    can_isolate(&data_dir).await?;
    let plane = embedded::open_to_work(&data_dir, &operator, environment, output).await?;
    let answering = Answering::begin(&plane, &data_dir).await?;
    let control = Control::Here(plane);
    let result = watched(&control, new, gates(args.yes), output).await;
    answering.end().await;
    control.leave().await;
    watch::conclude(&result?, output)
}

/// On a server, which isolates on its own machine. What this command does ends with it, the run does not.
async fn elsewhere(
    args: &Run,
    operator: &OperatorConfig,
    data_dir: &Path,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    let new = NewRun {
        workflow: Some(workflow_there(args)?),
        ..request(args, args.repo.clone())
    };
    let work = Work::Look;
    let control =
        Control::open(&args.remote, data_dir, operator, environment, work, output).await?;
    let result = watched(&control, new, gates(args.yes), output).await;
    control.leave().await;
    watch::conclude(&result?, output)
}

/// A path in the repository goes as it is; without a repository the file's text does.
fn workflow_there(args: &Run) -> Result<WorkflowSource> {
    match (&args.repo, args.workflow.to_str()) {
        (None, _) => workflow(&args.workflow, None),
        (Some(_), Some(path)) if args.workflow.is_relative() => Ok(WorkflowSource::Path(
            path.trim_start_matches("./").to_owned(),
        )),
        (Some(_), _) => Err(Misuse::usage_hint(
            format!(
                "the workflow {} is no path in a repository",
                args.workflow.display()
            ),
            "name it by its path in the repository, such as .bulkhead/workflow.yaml",
        )
        .into()),
    }
}

/// Says before anything else that this machine cannot isolate; there is no way around it (R3).
pub(super) async fn can_isolate(data_dir: &Path) -> Result<()> {
    Engine::probe(EngineConfig::new(sandbox_dir(data_dir))).await?;
    Ok(())
}

/// Begins a run and follows it.
pub(super) async fn watched(
    control: &Control,
    new: NewRun,
    gates: Gates,
    output: Output,
) -> Result<bulkhead_server::RunView> {
    let interrupt = Interrupt::listen(output)?;
    let created = control.create_run(new).await?;
    let id: RunId = created.id.parse().context("reading the run's id")?;
    if let Some(branch) = &created.branch {
        output.note(format_args!("Run {id} on {branch}"));
    }
    watch::follow(control, id, gates, &interrupt.token(), output).await
}

/// Without a terminal nobody can be asked: the run stops at its gate, and waits.
pub(super) fn gates(yes: bool) -> Gates {
    match (yes, output::can_ask()) {
        (true, _) => Gates::Approve,
        (false, true) => Gates::Ask,
        (false, false) => Gates::Stop,
    }
}

fn new_run(args: &Run) -> Result<NewRun> {
    let repo = args.repo.as_deref().map(repository).transpose()?;
    Ok(NewRun {
        workflow: Some(workflow(&args.workflow, repo.as_deref())?),
        ..request(args, repo)
    })
}

fn request(args: &Run, repo: Option<String>) -> NewRun {
    NewRun {
        workflow: None,
        repo,
        base: args.branch.clone(),
        branch: None,
        inputs: args.input.iter().cloned().collect(),
        agent: args.agent.clone(),
        idempotency_key: None,
    }
}

/// A URL as it is; a directory by its whole path, because the control plane need not stand where we do.
fn repository(repo: &str) -> Result<String> {
    if repo.contains("://") {
        return Ok(repo.to_owned());
    }
    let path = PathBuf::from(repo)
        .canonicalize()
        .map_err(|error| Misuse::usage(format!("the repository {repo}: {error}")))?;
    path.into_os_string()
        .into_string()
        .map_err(|_| Misuse::usage(format!("the repository's path {repo} is not UTF-8")).into())
}

/// With a repository, the path in it: the file is read from a commit. Without one, the file's text.
fn workflow(path: &Path, repo: Option<&str>) -> Result<WorkflowSource> {
    let Some(repo) = repo else {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Misuse::usage(format!("the workflow {}: {error}", path.display())))?;
        return Ok(WorkflowSource::Text(text));
    };
    let inside = path
        .canonicalize()
        .ok()
        .and_then(|path| Some(path.strip_prefix(repo).ok()?.to_owned()));
    let below: PathBuf = inside
        .unwrap_or_else(|| path.to_owned())
        .components()
        .skip_while(is_here)
        .collect();
    let text = below.to_str().filter(|_| below.is_relative());
    text.map(|text| WorkflowSource::Path(text.to_owned())).ok_or_else(|| {
        Misuse::usage_hint(
            format!("the workflow {} is not in the repository", path.display()),
            "name it by its path in the repository: it is read from the commit that the run starts from",
        )
        .into()
    })
}

fn is_here(component: &std::path::Component<'_>) -> bool {
    matches!(component, std::path::Component::CurDir)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::path::Path;

    use bulkhead_server::WorkflowSource;

    use super::workflow;

    #[test]
    fn r1_a_workflow_is_a_path_in_the_repository_however_it_was_named() {
        let repo = tempfile::tempdir().unwrap();
        let root = repo.path().canonicalize().unwrap();
        std::fs::write(root.join("w.yaml"), "").unwrap();
        let named = |path: &Path| workflow(path, root.to_str());
        let expected = WorkflowSource::Path("w.yaml".into());
        assert_eq!(named(Path::new("./w.yaml")).unwrap(), expected);
        assert_eq!(named(&root.join("w.yaml")).unwrap(), expected);
        assert_eq!(
            named(Path::new("only/committed.yaml")).unwrap(),
            WorkflowSource::Path("only/committed.yaml".into())
        );
        assert!(named(Path::new("/etc/passwd")).is_err());
    }

    #[test]
    fn r1_without_a_repository_the_file_itself_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "name: x").unwrap();
        assert_eq!(
            workflow(file.path(), None).unwrap(),
            WorkflowSource::Text("name: x".into())
        );
        assert!(workflow(Path::new("/nowhere/w.yaml"), None).is_err());
    }
}
