//! What the control plane must be told by the program that embeds it. It reads no environment and no
//! configuration file by itself.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use bulkhead_git::GitProgram;
use bulkhead_store::MasterKey;
use secrecy::SecretString;
use url::Url;

use crate::{Clock, FailPoints};

/// Everything that [`ControlPlane::open`](crate::ControlPlane::open) needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Holds the database, the key, logs, mirrors of repositories. One server at a time.
    pub data_dir: PathBuf,
    /// A private directory for sockets and whatever else ends with this process.
    pub run_dir: PathBuf,
    /// The name that pushes and commits carry.
    pub author_name: String,
    pub author_email: String,
    /// How long an executor may be silent before its phase counts as lost.
    pub lease_ttl: Duration,
    /// Model APIs by name; their credentials stay in the control plane.
    pub models: BTreeMap<String, ModelUpstream>,
    /// Credentials for remote repositories, by the URL that they begin with; the longest match counts.
    pub git_credentials: Vec<GitCredential>,
    /// Repositories that submodules may come from, besides those that the parent holds itself (case 38).
    pub submodules: Vec<Submodule>,
    /// Directories outside `/usr` that sandboxes may see, read-only (R6).
    pub toolchains: Vec<PathBuf>,
    pub notify: NotifyConfig,
    pub retention: Retention,
    /// The operator's outgoing HTTP proxy and certificate authority (R6).
    pub proxy: Option<Url>,
    pub ca_file: Option<PathBuf>,
    /// Hosts on private networks that models and webhooks may be on. Exact names or addresses.
    pub allow_private_hosts: Vec<String>,
    /// Names besides loopback and addresses under which the API answers.
    pub allowed_hosts: Vec<String>,
    /// How long to wait for another process that holds the data directory.
    pub patience: Duration,
    /// Where the master key comes from (D7).
    pub master_key: MasterKey,
    pub git: GitProgram,
    pub clock: Clock,
    pub fail_points: FailPoints,
}

/// One model API as the gateway reaches it.
#[derive(Debug, Clone)]
pub struct ModelUpstream {
    pub base_url: Url,
    /// The header that carries the credential upstream, for example `x-api-key` or `authorization`.
    pub header: String,
    /// Its whole value, for example `Bearer …`. None where the upstream wants none (a local model).
    pub credential: Option<SecretString>,
    /// Whether the operator permits a private or loopback address for this upstream.
    pub allow_private: bool,
}

#[derive(Debug, Clone)]
pub struct GitCredential {
    pub url_prefix: String,
    pub username: String,
    pub password: SecretString,
}

/// A submodule's repository that the operator permits.
#[derive(Debug, Clone)]
pub struct Submodule {
    /// The URL as `.gitmodules` has it, or as it resolves against the parent's own URL or path.
    pub url: String,
    /// A path on this machine or a URL: where it is fetched from.
    pub source: String,
}

/// Where word of waiting gates may go. A workflow names one of these; it can bring none of its own.
#[derive(Debug, Clone, Default)]
pub struct NotifyConfig {
    pub commands: BTreeMap<String, NotifyCommand>,
    /// Whether webhooks may go to private and loopback addresses.
    pub allow_private_webhooks: bool,
}

/// A command of the operator's. It gets the notice as JSON on its standard input.
#[derive(Debug, Clone)]
pub struct NotifyCommand {
    pub argv: Vec<String>,
    pub time_limit: Duration,
}

/// How long ended runs are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    pub runs: Option<Duration>,
    pub logs: Option<Duration>,
}

impl Config {
    /// The defaults around the two directories.
    pub fn new(data_dir: PathBuf, run_dir: PathBuf) -> Self {
        Self {
            data_dir,
            run_dir,
            author_name: "Bulkhead".to_owned(),
            author_email: "bulkhead@localhost".to_owned(),
            lease_ttl: Duration::from_secs(30),
            models: BTreeMap::new(),
            git_credentials: Vec::new(),
            submodules: Vec::new(),
            toolchains: Vec::new(),
            notify: NotifyConfig::default(),
            retention: Retention {
                runs: None,
                logs: Some(Duration::from_secs(30 * 24 * 60 * 60)),
            },
            proxy: None,
            ca_file: None,
            allow_private_hosts: Vec::new(),
            allowed_hosts: Vec::new(),
            patience: Duration::ZERO,
            master_key: MasterKey::File,
            git: GitProgram::default(),
            clock: Clock::System,
            fail_points: FailPoints::default(),
        }
    }
}
