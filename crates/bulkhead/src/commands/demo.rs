//! `bulkhead demo`: a sample repository and workflow, all the way, in the sandbox.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use bulkhead_server::{NewRun, RunStatus, RunView, WorkflowSource};
use serde_json::json;

use super::run::{can_isolate, gates, watched};
use crate::{
    cli::{Demo, Global},
    config::OperatorConfig,
    control::Control,
    embedded,
    environment::{self, Environment},
    failure::Exit,
    output::Output,
    watch,
    words::short,
};

const WORKFLOW: &str = ".bulkhead/workflow.yaml";
/// The sample repository; `examples/demo` in this project's own.
const SAMPLE: &[(&str, &str)] = &[
    (
        "README.md",
        include_str!("../../../../examples/demo/README.md"),
    ),
    ("greet", include_str!("../../../../examples/demo/greet")),
    ("test.sh", include_str!("../../../../examples/demo/test.sh")),
    (
        WORKFLOW,
        include_str!("../../../../examples/demo/.bulkhead/workflow.yaml"),
    ),
    (
        ".bulkhead/agent/plan.yaml",
        include_str!("../../../../examples/demo/.bulkhead/agent/plan.yaml"),
    ),
    (
        ".bulkhead/agent/implement.yaml",
        include_str!("../../../../examples/demo/.bulkhead/agent/implement.yaml"),
    ),
];

pub(crate) async fn run(
    args: Demo,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    let place = tempfile::Builder::new()
        .prefix("bulkhead-demo-")
        .tempdir()
        .context("making a directory for the demo")?;
    // The data directory goes with the demo, unless somebody named one to keep it in.
    let data_dir = global
        .data_dir
        .clone()
        .unwrap_or_else(|| place.path().join("data"));
    can_isolate(&data_dir).await?;
    let repo = place.path().join("greet");
    make_sample(&repo)?;
    output.note(format_args!("A sample repository is in {}", repo.display()));
    let run = perform(args, &repo, &data_dir, environment, output).await?;
    let commits = commits(&repo, &run)?;
    // Only now is there something to look at later.
    let place = place.keep();
    let exit = watch::say(&run, output);
    if global.data_dir.is_none() {
        output.note(format_args!(
            "  The demo's runs are in a place of their own: export BULKHEAD_DATA_DIR={}",
            data_dir.display()
        ));
    }
    say(&run, &commits, &place, &repo, output)?;
    output.json_object(&json!({
        "run": run,
        "repository": repo,
        "commits": commits,
        "exit_code": exit.code(),
    }))?;
    Ok(exit)
}

async fn perform(
    args: Demo,
    repo: &Path,
    data_dir: &Path,
    environment: &Environment,
    output: Output,
) -> Result<RunView> {
    let operator = OperatorConfig::default();
    let plane = embedded::open_to_work(data_dir, &operator, environment, output).await?;
    let control = Control::Here(plane);
    let new = NewRun {
        repo: Some(
            repo.to_str()
                .context("the temporary directory's path is not UTF-8")?
                .to_owned(),
        ),
        base: Some("main".into()),
        branch: None,
        workflow: Some(WorkflowSource::Path(WORKFLOW.into())),
        inputs: std::collections::BTreeMap::new(),
        agent: None,
        idempotency_key: None,
    };
    let result = watched(&control, new, gates(args.yes), output).await;
    control.leave().await;
    result
}

fn make_sample(repo: &Path) -> Result<()> {
    for (path, text) in SAMPLE {
        let path = repo.join(path);
        let dir = path.parent().context("a sample file without a directory")?;
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    git(repo, &["init", "--quiet", "--initial-branch=main"])?;
    git(repo, &["add", "--all"])?;
    git(
        repo,
        &["commit", "--quiet", "--message=A script that greets"],
    )?;
    Ok(())
}

/// git on the sample that this process just made, before any agent saw it; with nobody's configuration.
fn git(repo: &Path, arguments: &[&str]) -> Result<String> {
    let path = environment::variable("PATH").unwrap_or_default();
    let output = Command::new("git")
        .args([
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
        ])
        .arg("-C")
        .arg(repo)
        .args(arguments)
        .env_clear()
        .env("PATH", path)
        .envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ])
        .envs([
            ("GIT_AUTHOR_NAME", "Demo"),
            ("GIT_AUTHOR_EMAIL", "demo@localhost"),
        ])
        .envs([
            ("GIT_COMMITTER_NAME", "Demo"),
            ("GIT_COMMITTER_EMAIL", "demo@localhost"),
        ])
        .stdin(Stdio::null())
        .output()
        .context("starting git")?;
    if !output.status.success() {
        bail!(
            "git {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The commits that the run's branch has and its base has not, oldest first.
fn commits(repo: &Path, run: &RunView) -> Result<Vec<String>> {
    let Some(branch) = &run.branch else {
        return Ok(Vec::new());
    };
    let branch = branch.strip_prefix("refs/heads/").unwrap_or(branch);
    let range = format!("main..{branch}");
    let log = git(repo, &["log", "--reverse", "--format=%H %s", &range, "--"])?;
    Ok(log.lines().map(str::to_owned).collect())
}

fn say(run: &RunView, commits: &[String], place: &Path, repo: &Path, output: Output) -> Result<()> {
    let branch = run.branch.as_deref().unwrap_or_default();
    let repo = repo.display();
    if run.status == RunStatus::Completed {
        output.words(format_args!(
            "\nDone: the run is completed, and its branch {branch} holds"
        ))?;
        for commit in commits {
            output.words(format_args!(
                "  {}",
                commit.replacen(
                    commit.split(' ').next().unwrap_or_default(),
                    short(commit),
                    1
                )
            ))?;
        }
    } else {
        output.words(format_args!(
            "\nThe run is not completed: {}.",
            crate::words::standing(run)
        ))?;
    }
    output.words(format_args!(
        "\nLook at it:
  git -C {repo} log --stat main..{branch}
  rm -r {}          when you have seen it

With your own repository and agent:
  1. Write .bulkhead/workflow.yaml in your repository and commit it; this one is a beginning:
       {repo}/{WORKFLOW}
  2. Replace its agents by `agent: claude` (or codex, gemini, opencode, or a command of yours),
     and allow what the phases need: `network: [preset:npm]`
  3. export ANTHROPIC_API_KEY=…   It stays outside the sandbox; the agent gets a placeholder.
  4. bulkhead run .bulkhead/workflow.yaml --repo PATH",
        place.display()
    ))?;
    Ok(())
}
