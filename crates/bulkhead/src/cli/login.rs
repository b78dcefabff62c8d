//! `bulkhead login` and `bulkhead logout`.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  bulkhead login --server https://bulkhead.example.com              asks for the token, without showing it
  bulkhead login --server http://127.0.0.1:7070 < token.txt
  bulkhead run .bulkhead/workflow.yaml --repo https://example.com/team/project.git --server https://bulkhead.example.com

The token is tried first, and kept in ~/.config/bulkhead/servers.json (0600) for commands with the same --server.
The first token of a server is printed at its first start.";

/// Keep a server's token, so that --server alone is enough
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Login {
    /// The server
    #[arg(
        long,
        value_name = "URL",
        env = "BULKHEAD_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7070"
    )]
    pub(crate) server: String,
    /// A file that holds the token [default: BULKHEAD_TOKEN, or standard input, or a question]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// Forget a server's token
#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// The server
    #[arg(
        long,
        value_name = "URL",
        env = "BULKHEAD_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7070"
    )]
    pub(crate) server: String,
}
