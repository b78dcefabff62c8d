//! A container as a host: made at the first use, removed by the teardown (H12).
//!
//! Docker's and Podman's engines, over their socket on the host before this one. What runs in the container is a holder
//! ([`crate::holder`]) as its first process, put there through the engine's archive interface, so an image needs nothing
//! inside but what the session runs. The session's connection is the holder's input: where it ends, however it ends, the
//! container ends, and the engine removes it.

mod archive;
mod check;
mod config;
mod container;
mod engine;
mod error;
mod isolation;
mod request;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use bollard::Docker;
use tokio::sync::Mutex;

pub use config::{
    ContainerLimits, DockerConfig, Mount, MountAccess, Namespace, Network, NoNewPrivileges,
    Privileged, Pull, Root, Seccomp, Security, SystemPaths,
};

use self::{container::Container, error::DockerError};
use crate::{
    Command, DuplexStream, Endpoint, Host, HostError, Layer, Lazy, Listener, Process, Provider,
    Stdio,
    holder::{self, Place},
};

/// The label of every container of ours.
const LABEL: &str = "bulkhead";

/// One container.
#[derive(Debug)]
pub struct DockerHost {
    inner: Arc<Inner>,
    files: Arc<dyn Provider>,
}

#[derive(Debug)]
struct Inner {
    outer: Arc<dyn Host>,
    config: DockerConfig,
    name: String,
    container: Lazy<Container, HostError>,
    /// Something of that name may be on the engine.
    was_asked_for: AtomicBool,
    has_ended: AtomicBool,
    /// Whoever tears down at the same time waits for the first.
    ending: Mutex<()>,
}

impl DockerHost {
    /// Describes a container of the engine on `outer`; nothing is made yet.
    pub fn new(outer: Arc<dyn Host>, mut config: DockerConfig) -> Self {
        config.labels.insert(LABEL.to_owned(), "session".to_owned());
        let inner = Arc::new(Inner {
            outer,
            config,
            name: format!("bulkhead-{}", uuid::Uuid::now_v7().simple()),
            container: Lazy::new(),
            was_asked_for: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            ending: Mutex::const_new(()),
        });
        let files = holder::files(Arc::clone(&inner) as Arc<dyn Place>);
        Self { inner, files }
    }

    /// The container's name on its engine, known before it is made: for whoever must remove it when this process cannot.
    pub fn container_name(&self) -> &str {
        &self.inner.name
    }

    /// Removes a container of that name from the engine at `socket` on `outer`; one that is not there is fine.
    pub async fn remove(outer: Arc<dyn Host>, socket: &Path, name: &str) -> Result<(), HostError> {
        let host = format!("the engine on {}", outer.describe());
        let removed = async {
            let docker = reach(outer, socket).await?;
            container::remove(&docker, name).await
        };
        removed.await.map_err(|error| host_error(host, error))
    }
}

impl Inner {
    fn describe(&self) -> String {
        format!("docker container of {}", self.config.image)
    }

    async fn container(&self) -> Result<&Container, HostError> {
        if self.has_ended.load(Ordering::SeqCst) && self.container.made().is_none() {
            return Err(self.gone());
        }
        self.container.get(|| self.make()).await
    }

    async fn make(&self) -> Result<Container, HostError> {
        let docker = self.docker().await?;
        self.was_asked_for.store(true, Ordering::SeqCst);
        let made = container::make(&docker, &self.config, &self.name, self.describe()).await;
        let error = match made {
            Ok(container) if !self.has_ended.load(Ordering::SeqCst) => return Ok(container),
            // The teardown came in between, and may have found nothing yet.
            Ok(_) => self.gone(),
            Err(error) => host_error(self.describe(), error),
        };
        // What is left stays noted, and the teardown tries again.
        if container::remove(&docker, &self.name).await.is_ok() {
            self.was_asked_for.store(false, Ordering::SeqCst);
        }
        Err(error)
    }

    fn gone(&self) -> HostError {
        HostError::Gone {
            host: self.describe(),
        }
    }

    async fn docker(&self) -> Result<Docker, HostError> {
        reach(Arc::clone(&self.outer), &self.config.socket)
            .await
            .map_err(|error| host_error(self.describe(), error))
    }

    async fn teardown(&self) -> Result<(), HostError> {
        self.has_ended.store(true, Ordering::SeqCst);
        let _alone = self.ending.lock().await;
        if !self.was_asked_for.load(Ordering::SeqCst) {
            return Ok(());
        }
        if let Some(container) = self.container.made() {
            container.holder.end().await;
        }
        let docker = self.docker().await?;
        container::remove(&docker, &self.name)
            .await
            .map_err(|error| host_error(self.describe(), error))?;
        self.was_asked_for.store(false, Ordering::SeqCst);
        Ok(())
    }
}

#[async_trait]
impl Place for Inner {
    async fn helper(&self, arguments: Vec<String>, stdio: Stdio) -> Result<Process, HostError> {
        let argv = std::iter::once(archive::HELPER.to_owned()).chain(arguments);
        let command = Command::new(argv).stdio(stdio);
        self.container().await?.holder.spawn(command).await
    }

    fn name(&self) -> String {
        self.describe()
    }
}

#[async_trait]
impl Host for DockerHost {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn is_connected(&self) -> bool {
        self.inner.was_asked_for.load(Ordering::SeqCst)
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        self.inner.container().await?.holder.spawn(command).await
    }

    fn files(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.files)
    }

    async fn connect(&self, to: Endpoint) -> Result<DuplexStream, HostError> {
        self.inner.container().await?.holder.stream_to(to).await
    }

    async fn listen(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        self.inner.container().await?.holder.listen_at(at).await
    }

    fn isolation(&self) -> Vec<Layer> {
        let inner = &self.inner;
        let facts = inner.container.made().map(|container| &container.facts);
        let mut layers = inner.outer.isolation();
        layers.push(isolation::layer(&inner.config, inner.describe(), facts));
        layers
    }

    async fn teardown(&self) -> Result<(), HostError> {
        self.inner.teardown().await
    }
}

async fn reach(outer: Arc<dyn Host>, socket: &Path) -> Result<Docker, DockerError> {
    let reaching = DockerError::engine("reaching the engine");
    match engine::engine(outer, socket.to_owned()) {
        Ok(docker) => docker.negotiate_version().await.map_err(reaching),
        Err(error) => Err(reaching(error)),
    }
}

fn host_error(host: String, error: DockerError) -> HostError {
    match error {
        // A boundary that is not the one that was asked for.
        refused @ DockerError::NotAsAsked(_) => HostError::Refused(refused.to_string()),
        other => HostError::Connect {
            host,
            source: Arc::new(other),
        },
    }
}
