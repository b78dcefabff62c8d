//! The control plane as its embedder holds it.

mod keys;
mod lists;
mod live;
mod moves;

use std::{fs, io, os::unix::fs::DirBuilderExt as _, path::Path, sync::Arc, time::Duration};

use bulkhead_door::model::ModelGateway;
use bulkhead_egress::{
    AllowPrivate, DnsResolver, Egress, EgressConfig, Tls, TlsError, UpstreamProxy,
};
use bulkhead_git::Repository;
pub use bulkhead_model::gate::Scope;
use bulkhead_runner::{Executor, Orphan};
use bulkhead_store::{Access, Store, logs::LocalLogs};
use secrecy::SecretString;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Config, api, gateway, models, outbox,
    phase::Phases,
    plane::{HOLDER, Plane},
    problem::chain,
    reconcile,
    repos::Repos,
    retention,
};

/// How long tasks may take to end at a graceful stop.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The token's name; decisions and cancels carry it.
    pub name: String,
    pub scopes: Vec<Scope>,
}

impl Caller {
    /// The person at this machine's terminal, who owns the data directory and may do everything.
    pub fn local() -> Self {
        Self {
            name: "local".to_owned(),
            scopes: ALL_SCOPES.to_vec(),
        }
    }
}

pub(crate) const ALL_SCOPES: [Scope; 4] = [Scope::Read, Scope::Run, Scope::Decide, Scope::Admin];

/// The control plane could not be brought up.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot prepare {what}")]
    Io {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot open the data directory {path}")]
    Store {
        path: String,
        #[source]
        source: bulkhead_store::Error,
    },
    #[error("cannot clear what git commands of an earlier life left")]
    Git(#[source] bulkhead_git::Error),
    #[error("cannot set up outgoing connections: {0}")]
    Network(String),
    #[error("cannot set up TLS for outgoing connections")]
    Tls(#[source] TlsError),
    #[error("cannot mend what an earlier life left: {0}")]
    Recovery(String),
}

/// What was found at the start and mended.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    /// Phases that were in flight and are dispatched again.
    pub dispatched_again: Vec<String>,
    /// Phases whose push had landed, so that they are done.
    pub completed: Vec<String>,
    /// What an earlier life left behind.
    pub orphans: Vec<Orphan>,
}

/// Runs, phases and gates, and what makes them move. Cheap to clone.
#[derive(Clone)]
pub struct ControlPlane {
    plane: Arc<Plane>,
}

impl ControlPlane {
    /// Opens the data directory. Nothing moves before [`ControlPlane::start`].
    pub async fn open(config: Config, executor: Arc<dyn Executor>) -> Result<Self, OpenError> {
        private_dir(&config.run_dir)?;
        let access = Access::NextServer {
            patience: config.patience,
        };
        let store = Store::open(&config.data_dir, access, config.master_key.clone())
            .await
            .map_err(|source| OpenError::Store {
                path: config.data_dir.display().to_string(),
                source,
            })?;
        let git_data = store.dir().git();
        Repository::clear_scratch(&git_data).map_err(OpenError::Git)?;
        let plane = Plane {
            repos: Repos::new(config.git.clone(), git_data),
            logs: Arc::new(LocalLogs::new(store.dir().logs())),
            egress: egress(&config)?,
            tls: tls(&config)?,
            store,
            executor,
            phases: Phases::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            config,
        };
        Ok(Self {
            plane: Arc::new(plane),
        })
    }

    /// Mends what an earlier life left behind, then begins to work. Once.
    pub async fn start(&self) -> Result<Recovered, OpenError> {
        let plane = &self.plane;
        let orphans = plane.executor.sweep(&[]).await;
        for orphan in &orphans {
            tracing::warn!(kind = %orphan.kind, what = orphan.what, left = ?orphan.left, "found an orphan");
        }
        let recovery = |error: &dyn std::error::Error| OpenError::Recovery(chain(error));
        plane
            .store
            .expire_leases_of(HOLDER)
            .await
            .map_err(|error| recovery(&error))?;
        plane
            .store
            .free_claims()
            .await
            .map_err(|error| recovery(&error))?;
        let listener = gateway::bind(&plane.config.run_dir).map_err(|source| OpenError::Io {
            what: "the phase gateway's socket".to_owned(),
            source,
        })?;
        let models = models::gateway(plane).map_err(|error| OpenError::Network(chain(&error)))?;
        let done = reconcile::once(plane, reconcile::When::Start)
            .await
            .map_err(OpenError::Recovery)?;
        self.spawn_workers(listener, models);
        Ok(Recovered {
            dispatched_again: done.dispatched_again,
            completed: done.completed,
            orphans,
        })
    }

    fn spawn_workers(&self, listener: UnixListener, models: ModelGateway) {
        let plane = &self.plane;
        plane
            .tasks
            .spawn(gateway::serve(Arc::clone(plane), listener, models));
        plane.tasks.spawn(outbox::work(Arc::clone(plane)));
        plane.tasks.spawn(reconcile::on_timer(Arc::clone(plane)));
        plane.tasks.spawn(retention::on_timer(Arc::clone(plane)));
    }

    /// Serves the HTTP API until `stop` is cancelled; live streams say `bye` and end.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        let router = api::router(self.clone());
        let closing = self.plane.closing.clone();
        let stopped = async move {
            stop.cancelled().await;
            closing.cancel();
        };
        axum::serve(listener, router)
            .with_graceful_shutdown(stopped)
            .await
    }

    /// The API as a router, for those who serve it themselves.
    pub fn router(&self) -> axum::Router {
        api::router(self.clone())
    }

    /// Stops taking work, ends the phases in flight (they are dispatched again at the next start) and closes
    /// the store. `kill -9` in its place loses nothing either.
    pub async fn shutdown(&self) {
        let plane = &self.plane;
        plane.closing.cancel();
        plane.executor.shutdown().await;
        plane.tasks.close();
        if tokio::time::timeout(STOP_PATIENCE, plane.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(left = plane.tasks.len(), "some tasks did not end in time");
        }
        plane.store.close().await;
    }

    /// Whether the store answers and new work is taken.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        if self.plane.closing.is_cancelled() {
            return Err("the server is shutting down".to_owned());
        }
        let answered = self.plane.store.next_effect_due_ms().await;
        answered.map(drop).map_err(|error| chain(&error))
    }

    /// What this machine can isolate.
    pub(crate) async fn isolation(&self) -> serde_json::Value {
        self.plane.executor.isolation().await
    }

    pub(crate) fn allowed_hosts(&self) -> &[String] {
        &self.plane.config.allowed_hosts
    }

    /// The socket at which sandboxes reach the phase gateway.
    pub fn gateway_socket(&self) -> std::path::PathBuf {
        gateway::socket(&self.plane.config.run_dir)
    }
}

fn private_dir(path: &Path) -> Result<(), OpenError> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|source| OpenError::Io {
        what: format!("the directory {}", path.display()),
        source,
    })
}

fn egress(config: &Config) -> Result<Egress, OpenError> {
    let network = |error: &dyn std::error::Error| OpenError::Network(chain(error));
    let proxy = config
        .proxy
        .as_ref()
        .map(|url| SecretString::from(url.as_str()));
    let upstream_proxy = proxy
        .map(|url| UpstreamProxy::from_url(&url))
        .transpose()
        .map_err(|error| network(&error))?;
    let local_models = config.models.values().filter(|model| model.allow_private);
    let hosts = local_models.filter_map(|model| model.base_url.host_str());
    let hosts = config
        .allow_private_hosts
        .iter()
        .map(String::as_str)
        .chain(hosts);
    let allow_private = AllowPrivate::hosts(hosts).map_err(|error| network(&error))?;
    let settings = EgressConfig {
        allow_private,
        upstream_proxy,
        ..EgressConfig::default()
    };
    Ok(Egress::new(settings, DnsResolver::system()))
}

fn tls(config: &Config) -> Result<Tls, OpenError> {
    let pem = config.ca_file.as_ref().map(fs::read).transpose();
    let pem = pem.map_err(|source| OpenError::Io {
        what: "the operator's certificate authorities".to_owned(),
        source,
    })?;
    Tls::with_extra(pem.as_deref()).map_err(OpenError::Tls)
}
