//! `bulkhead secrets` and `bulkhead admin`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const SECRETS_EXAMPLES: &str = "\
Examples:
  bulkhead secrets set NPM_TOKEN < token.txt
  bulkhead secrets set NPM_TOKEN                 asks, without showing what you type
  bulkhead secrets list

A value is never an argument, because arguments are visible to everybody on the machine.";

/// Secrets that workflows may name; encrypted at rest, masked in logs
#[derive(Debug, Args)]
#[command(after_help = SECRETS_EXAMPLES)]
pub(crate) struct Secrets {
    #[command(subcommand)]
    pub(crate) command: SecretsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Keep a value, read from standard input or asked for; an existing one is replaced
    Set {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// The names, never the values
    List,
    /// Replace the value of a secret that exists; phases get the new one from their next start
    Rotate {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Forget a secret
    Remove {
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Look after the data directory
#[derive(Debug, Args)]
pub(crate) struct Admin {
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Write a whole, consistent copy of the database; the key is not in it
    Backup {
        /// A new file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Make a new master key and seal every secret with it
    RotateKey,
    /// Remove what is past its retention, and say what was removed
    Gc {
        /// Only say it
        #[arg(long)]
        dry_run: bool,
    },
}
