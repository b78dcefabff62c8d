//! `bulkhead runs`.

use clap::{Args, Subcommand};

use super::Remote;

const EXAMPLES: &str = "\
Examples:
  bulkhead runs list
  bulkhead runs diff                      the newest run's last phase
  bulkhead runs approve 0190a1b2          an unambiguous beginning of an id is enough
  bulkhead runs send-back --comment 'The test is missing.'
  bulkhead runs land --into main";

/// Look at runs, answer their gates, land their results
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Runs {
    #[command(flatten)]
    pub(crate) remote: Remote,
    #[command(subcommand)]
    pub(crate) command: RunsCommand,
}

/// Which run: its id or an unambiguous beginning of it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Which {
    /// The run's id, or an unambiguous beginning of it [default: the newest run]
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Phase {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The phase [default: the last one that began]
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Answer {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only if the gate is at this commit (its beginning is enough)
    #[arg(long, value_name = "SHA")]
    pub(crate) commit: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// All runs, newest first
    List {
        /// How many at most
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
    },
    /// One run: its phases, its gate, what it used
    Show(Which),
    /// A phase's log, masked
    Logs {
        #[command(flatten)]
        phase: Phase,
        /// Go on until the phase ends
        #[arg(long, short)]
        follow: bool,
    },
    /// What a phase changed; apart, what of it would run on your machine later
    Diff(Phase),
    /// Approve what the gate shows: the next phase runs
    Approve(Answer),
    /// Reject it: the run ends
    Reject(Answer),
    /// Send it back: the phase runs again with your comment in its prompt
    SendBack {
        #[command(flatten)]
        which: Which,
        /// What is to be done differently
        #[arg(long, value_name = "TEXT", required = true)]
        comment: String,
    },
    /// End the run and whatever it is doing
    Cancel(Which),
    /// Let the phase that runs end, and begin no other
    Pause {
        #[command(flatten)]
        which: Which,
        /// End the phase that runs; it begins anew when the run resumes
        #[arg(long)]
        now: bool,
    },
    /// Go on with a paused run
    Resume(Which),
    /// Merge or rebase the run's branch onto its base, and move the base there
    Land {
        #[command(flatten)]
        which: Which,
        /// The branch to land on [default: the one that the run started from]
        #[arg(long, value_name = "BRANCH")]
        into: Option<String>,
        /// Rebase instead of merging where the base has moved
        #[arg(long)]
        rebase: bool,
    },
    /// Cancel every run that is not at its end
    StopAll,
}
