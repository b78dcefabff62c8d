//! `bulkhead run` and `bulkhead demo`.

use std::path::PathBuf;

use clap::Args;

use super::Remote;

const RUN_EXAMPLES: &str = "\
Examples:
  bulkhead run .bulkhead/workflow.yaml --repo .
  bulkhead run release.yaml --repo https://example.com/team/project.git --branch main --input version=1.2
  bulkhead run .bulkhead/workflow.yaml --repo . --agent claude --yes --json
  bulkhead run ci.yaml --repo https://example.com/team/project.git --server https://bulkhead.example.com

The workflow is read from the commit that the run starts from, not from the working tree. The run's commits
are on a branch of its own; `bulkhead runs land` brings them onto the base.

Exit codes: 0 completed · 1 a phase failed, or somebody rejected · 2 wrong usage or workflow · 3 a boundary
could not be built · 4 it waits at a gate (no terminal to ask at): answer with `bulkhead runs approve`.";

/// Run a workflow against a repository, here and now or on a server
///
/// Shows progress live and asks at gates. Where there is no terminal to ask at, it stops at the first gate with
/// exit code 4; the run waits there until somebody answers. With --server the run is the server's, and goes on
/// there when this command ends; the repository is then a URL, or a path on the server's machine.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// The workflow's path, in the repository (or on this machine, where there is no repository)
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: PathBuf,
    /// The repository: a directory or a URL
    #[arg(long, value_name = "PATH|URL")]
    pub(crate) repo: Option<String>,
    /// The branch to start from [default: the repository's own default]
    #[arg(long, value_name = "B", requires = "repo")]
    pub(crate) branch: Option<String>,
    /// A value for an input that the workflow declares; may be given again
    #[arg(long, value_name = "K=V", value_parser = key_value)]
    pub(crate) input: Vec<(String, String)>,
    /// The agent for phases that name none
    #[arg(long, value_name = "A")]
    pub(crate) agent: Option<String>,
    /// Approve every gate unseen, where the phase succeeded
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// A sample repository and workflow, all the way, in the sandbox
///
/// Makes a small repository in a temporary directory and takes it through plan → implement → test with one gate.
/// The agent is scripted, so no key and no network is needed; everything else is real.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Approve the gate without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `K=V`, split at the first `=`.
fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
