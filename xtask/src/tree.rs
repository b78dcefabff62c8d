//! The repository's tracked files, read once.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// The root of the repository and the text of each tracked text file, by path below the root.
pub(crate) struct Tree {
    root: PathBuf,
    files: BTreeMap<String, String>,
}

impl Tree {
    pub(crate) fn open() -> Result<Self> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask has no parent directory")?
            .to_owned();
        let files = tracked(&root)?
            .into_iter()
            // A file that is deleted but not yet committed is listed and cannot be read; binary files are not text.
            .filter_map(|path| Some((path.clone(), std::fs::read_to_string(root.join(path)).ok()?)))
            .collect();
        Ok(Self { root, files })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Runs a command in the root with its output shown; whether it succeeded.
    pub(crate) fn run(&self, command: &mut Command) -> Result<bool> {
        let status = command
            .current_dir(&self.root)
            .status()
            .with_context(|| format!("starting {command:?}"))?;
        Ok(status.success())
    }

    /// Runs a command in the root and returns its standard output.
    pub(crate) fn output(&self, command: &mut Command) -> Result<String> {
        output_in(&self.root, command)
    }
}

fn tracked(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let listed = output_in(root, &mut git)?;
    Ok(listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect())
}

fn output_in(root: &Path, command: &mut Command) -> Result<String> {
    let output = command
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no UTF-8"))
}
