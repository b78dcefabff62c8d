//! A sandbox on the host before it, where that is not the runner's own machine (H11).
//!
//! The walls are bubblewrap's, with the system-call filter of our own sandbox, and behind them stands a holder
//! ([`crate::holder`]) as their first process: one set of namespaces for all processes of the host. Nothing is installed: the helper goes
//! over the connection into a file that is gone before the first process starts. Where the walls cannot be built, nothing
//! runs.
//!
//! ```text
//! prepare (sh) ─▶ bwrap: mounts, namespaces, filter ─▶ holder ─▶ processes, files, forwards
//! ```

mod config;
mod isolation;
mod prepare;
mod walls;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;

pub use config::{WrapConfig, WrapNetwork};

use self::prepare::Walls;
use crate::{
    Command, DuplexStream, Endpoint, Host, HostError, Layer, Lazy, Listener, Process, Provider,
    Stdio,
    holder::{self, Place},
};

/// One sandbox on another host.
#[derive(Debug)]
pub struct WrappedSandboxHost {
    inner: Arc<Inner>,
    files: Arc<dyn Provider>,
}

#[derive(Debug)]
struct Inner {
    outer: Arc<dyn Host>,
    config: WrapConfig,
    walls: Lazy<Walls, HostError>,
    has_ended: AtomicBool,
}

impl WrappedSandboxHost {
    /// Describes a sandbox on `outer`; nothing is made yet.
    pub fn new(outer: Arc<dyn Host>, config: WrapConfig) -> Self {
        let inner = Arc::new(Inner {
            outer,
            config,
            walls: Lazy::new(),
            has_ended: AtomicBool::new(false),
        });
        let files = holder::files(Arc::clone(&inner) as Arc<dyn Place>);
        Self { inner, files }
    }
}

impl Inner {
    fn describe(&self) -> String {
        format!("sandbox on {}", self.outer.describe())
    }

    async fn walls(&self) -> Result<&Walls, HostError> {
        let gone = || HostError::Gone {
            host: self.describe(),
        };
        let has_ended = || self.has_ended.load(Ordering::SeqCst);
        if has_ended() && self.walls.made().is_none() {
            return Err(gone());
        }
        let build = || async {
            let walls = Walls::build(&self.outer, &self.config, &self.describe()).await?;
            // The teardown came in between, and found nothing yet.
            if has_ended() {
                walls.end().await;
                return Err(gone());
            }
            Ok(walls)
        };
        self.walls.get(build).await
    }
}

#[async_trait]
impl Place for Inner {
    async fn helper(&self, arguments: Vec<String>, stdio: Stdio) -> Result<Process, HostError> {
        let argv = std::iter::once(walls::HELPER.to_owned()).chain(arguments);
        let command = Command::new(argv).stdio(stdio);
        self.walls().await?.holder.spawn(command).await
    }

    fn name(&self) -> String {
        self.describe()
    }
}

#[async_trait]
impl Host for WrappedSandboxHost {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn is_connected(&self) -> bool {
        self.inner.walls.made().is_some()
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        self.inner.walls().await?.holder.spawn(command).await
    }

    fn files(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.files)
    }

    async fn connect(&self, to: Endpoint) -> Result<DuplexStream, HostError> {
        self.inner.walls().await?.holder.stream_to(to).await
    }

    async fn listen(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        self.inner.walls().await?.holder.listen_at(at).await
    }

    fn isolation(&self) -> Vec<Layer> {
        let inner = &self.inner;
        let nested = inner.walls.made().map(|walls| walls.nested);
        let mut layers = inner.outer.isolation();
        layers.push(isolation::layer(&inner.config, inner.describe(), nested));
        layers
    }

    async fn teardown(&self) -> Result<(), HostError> {
        self.inner.has_ended.store(true, Ordering::SeqCst);
        if let Some(walls) = self.inner.walls.made() {
            walls.end().await;
        }
        Ok(())
    }
}

fn lost_after(config: &WrapConfig) -> Option<Duration> {
    config
        .lost_after_seconds
        .map(|seconds| Duration::from_secs(seconds.into()))
}
