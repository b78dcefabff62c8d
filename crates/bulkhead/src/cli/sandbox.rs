//! `bulkhead sandbox`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::quantity::{Cpus, Millis, Size};

const EXAMPLES: &str = "\
Examples:
  bulkhead sandbox exec -- sh -c 'id; ls /'
  bulkhead sandbox exec --workspace . -- make test
  bulkhead sandbox exec --allow pypi.org --allow files.pythonhosted.org -- pip download six
  bulkhead sandbox exec --memory 64MiB --time 5s --json -- ./suspicious

Exit codes: the command's own, or
  124 the time limit · 125 Bulkhead itself failed, refused or was called wrongly · 126 cannot be executed ·
  127 not found · 128+N ended by signal N.  The reason is always in words on standard error, and in --json.";

/// The sandbox alone, without runs and workflows
#[derive(Debug, Args)]
pub(crate) struct Sandbox {
    #[command(subcommand)]
    pub(crate) command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    Exec(Exec),
}

/// Run one command in a fresh sandbox that is gone when the command ends
///
/// The command sees the read-only system, an empty workspace (or the directory you name) and nothing else:
/// no network but what --allow names, none of your files, variables or processes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Exec {
    /// A directory to work in, writable for the command [default: an empty one that goes with the sandbox]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// A host that may be reached (port 443 unless given), or preset:NAME; may be given again
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow: Vec<String>,
    /// Memory, swap included
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub(crate) memory: Size,
    /// CPUs
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) cpus: Cpus,
    /// Processes and threads
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pids: u32,
    /// Disk for the workspace and the home directory
    #[arg(long, value_name = "SIZE", default_value = "10GiB")]
    pub(crate) disk: Size,
    /// Wall clock
    #[arg(long, value_name = "TIME", default_value = "60m")]
    pub(crate) time: Millis,
    /// A file or directory to show at the same path, read-only; may be given again
    #[arg(long, value_name = "PATH")]
    pub(crate) bind_ro: Vec<PathBuf>,
    /// A variable for the command; without =V it is taken from here; may be given again
    #[arg(long, value_name = "K[=V]")]
    pub(crate) env: Vec<String>,
    /// What builds the sandbox
    #[arg(long, value_enum, default_value_t = Engine::Builtin)]
    pub(crate) engine: Engine,
    /// An OCI image instead of this machine's own system directories
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Builtin,
    Runc,
    Crun,
    Youki,
    Runsc,
    Docker,
    Podman,
}
