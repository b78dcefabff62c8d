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
    Capabilities, Command, DuplexStream, Endpoint, ExitStatus, Host, HostError, Layer, Lazy,
    Listener, Process, ProcessControl, Provider, Signal, Stdio, Stream, Target, TerminalSize,
    process::{Reader, Writer},
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
                .map_err(|error| spawn_error(String::new(), error)),
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
        match sandbox.spawn(spec(command)).await {
            Ok(process) => Ok(held(process)),
            Err(error) => Err(spawn_error(program, error)),
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

fn spec(command: Command) -> sandbox::ProcessSpec {
    let mut spec = sandbox::ProcessSpec::new(command.argv);
    if let Some(cwd) = command.cwd {
        spec = spec.cwd(cwd);
    }
    for (name, value) in command.env {
        spec = spec.env(name, value);
    }
    spec.stdio(match command.stdio {
        Stdio::Streams {
            stdin,
            stdout,
            stderr,
        } => sandbox::Stdio::Streams {
            stdin: stream(stdin),
            stdout: stream(stdout),
            stderr: stream(stderr),
        },
        Stdio::Terminal(size) => sandbox::Stdio::Terminal(terminal_size(size)),
    })
}

const fn stream(stream: Stream) -> sandbox::Stream {
    match stream {
        Stream::Null => sandbox::Stream::Null,
        Stream::Pipe => sandbox::Stream::Pipe,
    }
}

const fn terminal_size(size: TerminalSize) -> sandbox::TerminalSize {
    sandbox::TerminalSize {
        rows: size.rows,
        columns: size.columns,
    }
}

fn held(mut process: sandbox::Process) -> Process {
    let (mut stdin, mut stdout): (Option<Writer>, Option<Reader>) = (None, None);
    if let Some(input) = process.stdin.take() {
        stdin = Some(Box::new(input));
    }
    if let Some(output) = process.stdout.take() {
        stdout = Some(Box::new(output));
    }
    if let Some(terminal) = process.terminal.take() {
        let (reader, writer) = tokio::io::split(terminal);
        stdin = Some(Box::new(writer));
        stdout = Some(Box::new(reader));
    }
    let stderr = process
        .stderr
        .take()
        .map(|output| Box::new(output) as Reader);
    Process {
        stdin,
        stdout,
        stderr,
        control: Arc::new(Control(process)),
    }
}

struct Control(sandbox::Process);

#[async_trait]
impl ProcessControl for Control {
    async fn wait(&self) -> ExitStatus {
        match self.0.wait().await {
            sandbox::ExitStatus::Code(code) => ExitStatus::Code(code),
            sandbox::ExitStatus::Signal(signal) => ExitStatus::Signal(signal),
            sandbox::ExitStatus::SandboxEnded => ExitStatus::HostEnded,
        }
    }

    async fn signal(&self, signal: Signal, target: Target) -> Result<(), HostError> {
        use rustix::process::Signal as Number;
        let number = match signal {
            Signal::Hangup => Number::HUP,
            Signal::Interrupt => Number::INT,
            Signal::Quit => Number::QUIT,
            Signal::User1 => Number::USR1,
            Signal::User2 => Number::USR2,
            Signal::Stop => Number::STOP,
            Signal::Continue => Number::CONT,
            Signal::Terminate => Number::TERM,
            Signal::Kill => Number::KILL,
        };
        let target = match target {
            Target::Process => sandbox::Target::Process,
            Target::Group => sandbox::Target::Group,
        };
        let sent = self.0.signal(number.as_raw(), target).await;
        sent.map_err(process_error)
    }

    async fn resize(&self, size: TerminalSize) -> Result<(), HostError> {
        let told = self.0.resize(terminal_size(size)).await;
        told.map_err(process_error)
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

fn spawn_error(program: String, error: sandbox::SpawnError) -> HostError {
    let host = NAME.to_owned();
    match error {
        sandbox::SpawnError::NotFound(_) => HostError::NotFound { host, program },
        sandbox::SpawnError::SandboxEnded => HostError::Gone { host },
        other => HostError::Spawn {
            host,
            program,
            source: Arc::new(other),
        },
    }
}

fn process_error(error: sandbox::ProcessError) -> HostError {
    HostError::Process {
        host: NAME.to_owned(),
        source: Arc::new(error),
    }
}
