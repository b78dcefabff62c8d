//! The sandbox as a host: built at the first use, ended by the teardown.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bulkhead_model::Outcome;
use bulkhead_sandbox as sandbox;
use bulkhead_sandbox::{BoundSocket, Cause, Engine, EngineConfig, Plan, Sandbox};

use crate::{
    Capabilities, Command, DuplexStream, Endpoint, Host, HostError, Layer, Lazy, Listener, Process,
    Provider, held,
};

const NAME: &str = "the sandbox";

/// Called once, when the sandbox stands and before anything runs in it, with the sockets of its plan.
pub type Listeners = Box<dyn FnOnce(Vec<BoundSocket>) + Send>;

/// One sandbox of the built-in engine.
pub struct SandboxHost {
    config: EngineConfig,
    plan: Plan,
    /// Taken at the first use.
    listeners: Mutex<Option<Listeners>>,
    sandbox: Lazy<Arc<Sandbox>, HostError>,
}

impl SandboxHost {
    /// Describes a sandbox; nothing is made yet.
    pub fn new(config: EngineConfig, plan: Plan, listeners: Listeners) -> Self {
        Self {
            config,
            plan,
            listeners: Mutex::new(Some(listeners)),
            sandbox: Lazy::new(),
        }
    }

    /// Builds the sandbox now, where the first process is too late for what must know that it stands.
    pub async fn connect(&self) -> Result<(), HostError> {
        self.sandbox().await.map(drop)
    }

    /// Waits until the sandbox has ended by itself, by its time limit say. Never returns where there is none.
    pub async fn ended(&self) -> Outcome {
        match self.sandbox.made() {
            Some(sandbox) => sandbox.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Ends everything inside and says how the sandbox ended; none where there never was one. The first cause
    /// counts.
    pub async fn end(&self, cause: Cause) -> Option<Outcome> {
        match self.sandbox.made() {
            Some(sandbox) => Some(sandbox.end(cause).await),
            None => None,
        }
    }

    /// Kills every process inside, whatever it does against it; the sandbox stays.
    pub async fn clear(&self) -> Result<(), HostError> {
        match self.sandbox.made() {
            Some(sandbox) => sandbox
                .clear()
                .await
                .map_err(|error| held::spawn_error(NAME, String::new(), error)),
            None => Ok(()),
        }
    }

    async fn sandbox(&self) -> Result<&Arc<Sandbox>, HostError> {
        self.sandbox.get(|| self.create()).await
    }

    async fn create(&self) -> Result<Arc<Sandbox>, HostError> {
        let engine = Engine::open(self.config.clone())
            .await
            .map_err(|refusal| HostError::Refused(refusal.to_string()))?;
        let sandbox = engine
            .create(self.plan.clone())
            .await
            .map_err(create_error)?;
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(listeners) = listeners.take() {
            listeners(sandbox.take_listeners());
        }
        Ok(Arc::new(sandbox))
    }
}

#[async_trait]
impl Host for SandboxHost {
    fn describe(&self) -> String {
        format!("sandbox {}", self.plan.id)
    }

    fn is_connected(&self) -> bool {
        self.sandbox.made().is_some()
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        let sandbox = self.sandbox().await?;
        let program = command.argv.first().cloned().unwrap_or_default();
        let base = sandbox::ProcessSpec::new(Vec::<String>::new());
        match sandbox.spawn(held::spec(base, command)).await {
            Ok(process) => Ok(held::process(NAME, process)),
            Err(error) => Err(held::spawn_error(NAME, program, error)),
        }
    }

    fn files(&self) -> Arc<dyn Provider> {
        Arc::new(NoFiles)
    }

    async fn connect(&self, _to: Endpoint) -> Result<DuplexStream, HostError> {
        Err(unsupported("forward ports yet"))
    }

    async fn listen(&self, _at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        Err(unsupported("forward ports yet"))
    }

    fn isolation(&self) -> Vec<Layer> {
        vec![]
    }

    async fn teardown(&self) -> Result<(), HostError> {
        self.end(Cause::Cancelled).await;
        Ok(())
    }
}

impl fmt::Debug for SandboxHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxHost")
            .field("plan", &self.plan)
            .field("sandbox", &self.sandbox)
            .finish_non_exhaustive()
    }
}

/// Until the sandbox has a file system of its own here, every operation answers `ENOSYS`.
#[derive(Debug)]
struct NoFiles;

impl Provider for NoFiles {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            readonly: true,
            symlinks: false,
            watch: false,
        }
    }
}

fn unsupported(what: &str) -> HostError {
    HostError::Unsupported {
        host: NAME.to_owned(),
        what: what.to_owned(),
    }
}

fn create_error(error: sandbox::CreateError) -> HostError {
    match error {
        sandbox::CreateError::Refused(refusal) => HostError::Refused(refusal.to_string()),
        other => HostError::Connect {
            host: NAME.to_owned(),
            source: Arc::new(other),
        },
    }
}
