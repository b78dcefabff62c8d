//! The command line: what can be said, in one place, with help that teaches.

mod admin;
mod isolates;
mod login;
#[cfg(test)]
mod page;
mod plugin;
mod quantity;
mod run;
mod runs;
mod sandbox;
mod serve;
mod session;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::{
    admin::{Admin, AdminCommand, Secrets, SecretsCommand},
    isolates::Isolates,
    login::{Login, Logout},
    plugin::{Plugin, PluginCheck, PluginCommand, PluginPlace, PluginRun, PluginTest},
    quantity::Millis,
    run::{Demo, Run},
    runs::{Answer, Phase, Runs, RunsCommand, Which},
    sandbox::{Engine, Exec, Sandbox, SandboxCommand},
    serve::Serve,
    session::{Host, HostCommand, Session, SessionCommand},
};
use crate::{failure::Errors, output::Format};

const EXAMPLES: &str = "\
First steps:
  bulkhead doctor                                   what this machine can isolate
  bulkhead demo                                     a sample repository, all the way
  bulkhead run .bulkhead/workflow.yaml --repo .     your own repository
  bulkhead sandbox exec -- sh -c 'id; ls /'         the sandbox alone

Exit codes:
  0 done · 1 the work failed · 2 wrong usage or input · 3 refused, a boundary could not be built ·
  4 stopped at a gate";

/// Runs coding agents behind boundaries that can be named, measured and trusted.
#[derive(Debug, Parser)]
#[command(name = "bulkhead", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Print one JSON object (or one a line, for streams) on standard output, and nothing else there
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Where runs, logs and the key are kept [default: ~/.local/share/bulkhead]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "BULKHEAD_DATA_DIR",
        hide_env_values = true
    )]
    pub(crate) data_dir: Option<PathBuf>,
    /// The operator's configuration [default: ~/.config/bulkhead/config.yaml, where it exists]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "BULKHEAD_CONFIG",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(Demo),
    Run(Run),
    Runs(Runs),
    Sandbox(Sandbox),
    Session(Session),
    Host(Host),
    Plugin(Plugin),
    /// Say what this machine can isolate, and the remedy for what it cannot
    ///
    /// Each boundary is tried for real: a sandbox is built, and probed from inside. Exits with 3 where one is
    /// missing, because then nothing would run.
    Doctor,
    Serve(Serve),
    Isolates(Isolates),
    Login(Login),
    Logout(Logout),
    /// Agents that are part of this program
    #[command(subcommand)]
    Agent(Agent),
    Secrets(Secrets),
    Admin(Admin),
    /// One phase's own process; started by the executor, with a socket as its standard input
    #[command(hide = true)]
    SessionWorker,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Agent {
    /// An agent that performs written steps over the Agent Client Protocol (demos, tests)
    Scripted {
        /// The file with the steps
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// A server to speak to, instead of working on the data directory.
#[derive(Debug, Clone, Args)]
pub(crate) struct Remote {
    /// Speak to this server; its token comes from --token-file, BULKHEAD_TOKEN or `bulkhead login`
    #[arg(
        long,
        value_name = "URL",
        env = "BULKHEAD_SERVER",
        hide_env_values = true
    )]
    pub(crate) server: Option<String>,
    /// A file that holds the server's token
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Cli {
    pub(crate) fn format(&self) -> Format {
        if self.global.json {
            Format::Json
        } else {
            Format::Words
        }
    }
}

impl Command {
    /// Whose exit codes the command's errors use.
    pub(crate) fn errors(&self) -> Errors {
        match self {
            Self::Sandbox(_) => Errors::Exec,
            _ => Errors::Ours,
        }
    }

    /// Whether the process will hold credentials, and so must not keep them in its environment.
    pub(crate) fn holds_credentials(&self) -> bool {
        match self {
            Self::Demo(_)
            | Self::Run(_)
            | Self::Runs(_)
            | Self::Serve(_)
            | Self::Login(_)
            | Self::Logout(_)
            | Self::Secrets(_)
            | Self::Session(_)
            | Self::Host(_)
            | Self::Plugin(_)
            | Self::Isolates(_)
            | Self::Admin(_) => true,
            Self::Sandbox(_) | Self::Doctor | Self::Agent(_) | Self::SessionWorker => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn section_6_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
