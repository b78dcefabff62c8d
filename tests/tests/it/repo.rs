//! Git repositories for tests.

use std::{path::Path, process::Command};

/// Runs git with a configuration of its own, and returns what it printed.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = command(dir).args(args).output().unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) fn command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "Test")
        .env("GIT_AUTHOR_EMAIL", "test@example.com")
        .env("GIT_COMMITTER_NAME", "Test")
        .env("GIT_COMMITTER_EMAIL", "test@example.com");
    command
}

/// A repository with one commit that holds a workflow.
pub(crate) fn with_workflow(dir: &Path, workflow: &str) {
    std::fs::create_dir_all(dir.join(".bulkhead")).unwrap();
    git(dir, &["init", "--quiet", "--initial-branch=main"]);
    std::fs::write(dir.join(".bulkhead/workflow.yaml"), workflow).unwrap();
    std::fs::write(dir.join("README.md"), "A sample.\n").unwrap();
    git(dir, &["add", "."]);
    git(dir, &["commit", "--quiet", "-m", "Begin"]);
}

/// The subjects of the commits of a branch since `main`, oldest first.
pub(crate) fn subjects(dir: &Path, branch: &str) -> Vec<String> {
    let range = format!("main..{branch}");
    let log = git(dir, &["log", "--reverse", "--format=%s", &range]);
    log.lines().map(str::to_owned).collect()
}
