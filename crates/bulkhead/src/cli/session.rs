//! `bulkhead session` and `bulkhead host`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const RUN_EXAMPLES: &str = "\
Examples:
  bulkhead session run examples/sessions/sandbox.yaml
  bulkhead session run SESSION.yaml --prompt 'Fix the failing test'
  bulkhead session run SESSION.yaml --json | jq .
  bulkhead session pause 3f2a91c0 && bulkhead session resume 3f2a91c0

The file names an agent (or a command) and an ordered list of plugs; docs/sessions.md tells about each. On a
terminal, what you type goes to the agent: a line is a prompt, Ctrl-D ends the session, Ctrl-C gives up the turn, and
once more ends the session. Before the agent starts, you are told what it can reach.

Exit codes: 0 done (or paused) · 1 the work failed · 2 wrong usage or file · 3 refused, a boundary could not be built.";

const CHECK_EXAMPLES: &str = "\
Examples:
  bulkhead host check sandbox
  bulkhead host check ssh:build-machine
  bulkhead host check docker:debian:stable
  bulkhead host check SESSION.yaml           the hosts of its plugs, one inside the other

Exit codes: 0 everything works · 1 something does not · 2 wrong usage or file · 3 the host could not be built.";

/// Sessions: one agent on a machine of your choice, shaped by plugs
#[derive(Debug, Args)]
pub(crate) struct Session {
    #[command(subcommand)]
    pub(crate) command: SessionCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    Run(SessionRun),
    /// Sessions that run, are paused, or have ended
    List,
    /// End a session's agent and connections, so that it can go on later
    ///
    /// On machines that outlive the session (ssh, this one) the work stays there; a sandbox and a container go.
    Pause {
        /// The session's id, or its beginning
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Go on with a paused session, here and now
    ///
    /// The agent gets its conversation back where its protocol can, in the mode that it had.
    Resume {
        /// The session's id, or its beginning
        #[arg(value_name = "ID")]
        id: String,
        /// What the agent is told next
        #[arg(long, value_name = "TEXT")]
        prompt: Option<String>,
    },
}

/// Run a session, here and now
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct SessionRun {
    /// The session's file
    #[arg(value_name = "SESSION.yaml")]
    pub(crate) file: PathBuf,
    /// What the agent is told first, instead of the file's prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
}

/// Machines that agents can run on
#[derive(Debug, Args)]
pub(crate) struct Host {
    #[command(subcommand)]
    pub(crate) command: HostCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    Check(HostCheck),
}

/// Try what a host offers, and say what an agent could reach there
///
/// Starts processes, reads and writes a file, forwards a port, and tears everything down again.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct HostCheck {
    /// `local`, `sandbox`, `ssh:NAME`, `docker:IMAGE`, `podman:IMAGE`, or a file with plugs that are hosts
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
}
