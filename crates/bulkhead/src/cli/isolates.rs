//! `bulkhead isolates`.

use std::path::PathBuf;

use clap::Args;

use super::Millis;

const EXAMPLES: &str = "\
Examples:
  bulkhead isolates
  bulkhead isolates --listen unix:/run/bulkhead/isolates.sock
  bulkhead isolates --listen 10.0.0.5:7443 --tls-cert service.pem --tls-key service.key --client-ca platform-ca.pem

The service answers over gRPC (bulkhead.isolates.v1): Invoke, Check, Status, Drain. A Unix socket is for this user alone;
over TCP both sides show certificates. The operator's configuration counts: proxy, certificate authority, private hosts.
At SIGTERM or Ctrl-C it takes nothing new, and what runs may finish.

Exit codes: 0 done · 2 wrong usage · 3 refused, a boundary could not be built (the words have the remedy).";

/// The service of plugins: untrusted JavaScript, each call in a locked-down process of its own
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Isolates {
    /// `unix:PATH`, or ADDRESS:PORT with certificates [default: unix:DATA-DIR/run/isolates/isolates.sock]
    #[arg(long, value_name = "PLACE")]
    pub(crate) listen: Option<String>,
    /// The service's certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The authority whose clients are believed, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Calls that run at once; those that wait for an answer do not count
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    pub(crate) slots: usize,
    /// Processes that stand ready, ahead of need
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    pub(crate) standby: usize,
    /// How long calls may still run once the service is to end
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) drain: Millis,
}
