//! The sandbox as a host: built at the first use, ended by the teardown.

mod isolation;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bulkhead_model::Outcome;
use bulkhead_sandbox as sandbox;
use bulkhead_sandbox::{BoundSocket, Cause, Engine, EngineConfig, Plan, Sandbox};

use crate::{
    Command, DuplexStream, Endpoint, Host, HostError, Layer, Lazy, Listener, Process, Provider,
    Stdio, held,
    helper::{self, Place},
};

const NAME: &str = "the sandbox";

/// Called once, when the sandbox stands and before anything runs in it, with the sockets of its plan.
pub type Listeners = Box<dyn FnOnce(Vec<BoundSocket>) + Send>;

/// One sandbox of the built-in engine.
pub struct SandboxHost(Arc<Inner>);

/// What the host and its file systems have in common.
struct Inner {
    config: EngineConfig,
    plan: Plan,
    /// Taken at the first use.
    listeners: Mutex<Option<Listeners>>,
    sandbox: Lazy<Arc<Sandbox>, HostError>,
}

impl SandboxHost {
    /// Describes a sandbox; nothing is made yet.
    pub fn new(config: EngineConfig, plan: Plan, listeners: Listeners) -> Self {
        Self(Arc::new(Inner {
            config,
            plan,
            listeners: Mutex::new(Some(listeners)),
            sandbox: Lazy::new(),
        }))
    }

    /// Builds the sandbox now, where the first process is too late for what must know that it stands.
    pub async fn connect(&self) -> Result<(), HostError> {
        self.0.sandbox().await.map(drop)
    }

    /// Waits until the sandbox has ended by itself, by its time limit say. Never returns where there is none.
    pub async fn ended(&self) -> Outcome {
        match self.0.sandbox.made() {
            Some(sandbox) => sandbox.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Ends everything inside and says how the sandbox ended; none where there never was one. The first cause
    /// counts.
    pub async fn end(&self, cause: Cause) -> Option<Outcome> {
        match self.0.sandbox.made() {
            Some(sandbox) => Some(sandbox.end(cause).await),
            None => None,
        }
    }

    /// Kills every process inside, whatever it does against it; the sandbox stays.
    pub async fn clear(&self) -> Result<(), HostError> {
        match self.0.sandbox.made() {
            Some(sandbox) => sandbox
                .clear()
                .await
                .map_err(|error| held::spawn_error(NAME, String::new(), error)),
            None => Ok(()),
        }
    }
}

impl Inner {
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
        format!("sandbox {}", self.0.plan.id)
    }

    fn is_connected(&self) -> bool {
        self.0.sandbox.made().is_some()
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        let sandbox = self.0.sandbox().await?;
        let program = command.argv.first().cloned().unwrap_or_default();
        let base = sandbox::ProcessSpec::new(Vec::<String>::new());
        match sandbox.spawn(held::spec(base, command)).await {
            Ok(process) => Ok(held::process(NAME, process)),
            Err(error) => Err(held::spawn_error(NAME, program, error)),
        }
    }

    /// Each one is a helper of its own inside, started by its first operation.
    fn files(&self) -> Arc<dyn Provider> {
        helper::files(Arc::clone(&self.0) as Arc<dyn Place>)
    }

    async fn connect(&self, to: Endpoint) -> Result<DuplexStream, HostError> {
        helper::connect(&*self.0, to).await
    }

    async fn listen(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        helper::listen(&*self.0, at).await
    }

    fn isolation(&self) -> Vec<Layer> {
        vec![isolation::layer(&self.0.plan, self.describe())]
    }

    async fn teardown(&self) -> Result<(), HostError> {
        self.end(Cause::Cancelled).await;
        Ok(())
    }
}

impl fmt::Debug for SandboxHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxHost")
            .field("plan", &self.0.plan)
            .field("sandbox", &self.0.sandbox)
            .finish_non_exhaustive()
    }
}

/// The helper runs inside, as the agent, so the kernel keeps every path and port to what the sandbox has.
#[async_trait]
impl Place for Inner {
    async fn helper(&self, arguments: Vec<String>, _stdio: Stdio) -> Result<Process, HostError> {
        let started = self.sandbox().await?.helper(arguments).await;
        let process = started.map_err(|error| held::spawn_error(NAME, String::new(), error))?;
        Ok(held::process(NAME, process))
    }

    fn name(&self) -> String {
        NAME.to_owned()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
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
