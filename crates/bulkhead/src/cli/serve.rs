//! `bulkhead serve`.

use std::net::SocketAddr;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  bulkhead serve
  bulkhead serve --listen 127.0.0.1:8080 --data-dir /var/lib/bulkhead

The first token is printed once, at the first start, and stored under the data directory. /healthz and /readyz answer
anyone; the API under /api/v1 asks for a token. TLS is a reverse proxy's task.";

/// The control plane as a service: HTTP API, scheduler, executor
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub(crate) listen: SocketAddr,
    /// A database elsewhere than in the data directory
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
}
