//! The runner's own machine as a host (H10): no isolation, the agent has the runner's rights.
//!
//! Only Linux has what this needs: a subreaper that ends what processes leave behind, and `openat2` for a rooted
//! file system. Other systems would get a module of their own beside this one.

mod calls;
mod forward;
mod open_file;
mod place;
mod provider;
mod watch;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bulkhead_sandbox::{DEFAULT_PATH, Holds, Keeper, ProcessSpec};
pub use provider::LocalProvider;

use crate::{
    Command, DuplexStream, Endpoint, Host, HostError, Layer, Lazy, Listener, Process, Provider,
    held,
};

const NAME: &str = "this machine";

/// What the host sets for every process. Nothing else is there, whatever the runner's own environment holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalConfig {
    /// Where processes start and relative paths begin.
    pub cwd: PathBuf,
    pub env: BTreeMap<String, String>,
}

impl LocalConfig {
    /// `PATH`, `HOME` and `LANG` only, working in `home`.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        let cwd = home.into();
        let env = [
            ("PATH", DEFAULT_PATH.to_owned()),
            ("HOME", cwd.to_string_lossy().into_owned()),
            ("LANG", "C.UTF-8".to_owned()),
        ];
        Self {
            cwd,
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }

    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = dir.into();
        self
    }

    /// Sets or replaces one variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }
}

/// The runner's own machine. Its processes are kept by a process of its own, which comes with the first of them and
/// ends whatever descends from them at the teardown, and when this process dies.
#[derive(Debug)]
pub struct LocalHost {
    config: LocalConfig,
    files: Arc<LocalProvider>,
    keeper: Lazy<Keeper, HostError>,
    /// Said once by a teardown, so that nothing begins after it.
    ended: Mutex<Ended>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    No,
    Yes,
}

impl LocalHost {
    /// Describes it; nothing is started yet.
    pub fn new(config: LocalConfig) -> Self {
        let files = Arc::new(LocalProvider::new(config.cwd.clone()));
        Self {
            config,
            files,
            keeper: Lazy::new(),
            ended: Mutex::new(Ended::No),
        }
    }

    async fn keeper(&self) -> Result<&Keeper, HostError> {
        let gone = HostError::Gone {
            host: NAME.to_owned(),
        };
        let connect = || async {
            Keeper::start().await.map_err(|source| HostError::Connect {
                host: NAME.to_owned(),
                source: Arc::new(source),
            })
        };
        if self.has_ended() {
            return Err(gone);
        }
        let keeper = self.keeper.get(connect).await?;
        if self.has_ended() {
            keeper.end().await;
            return Err(gone);
        }
        Ok(keeper)
    }

    fn has_ended(&self) -> bool {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) == Ended::Yes
    }

    fn spec(&self, command: Command) -> ProcessSpec {
        let mut spec = ProcessSpec::new(Vec::<String>::new()).cwd(&self.config.cwd);
        spec.env.clear();
        for (name, value) in &self.config.env {
            spec = spec.env(name, value);
        }
        let cwd = command.cwd.as_ref().map(|dir| self.config.cwd.join(dir));
        let spec = held::spec(spec, command);
        match cwd {
            Some(dir) => spec.cwd(dir),
            None => spec,
        }
    }
}

#[async_trait]
impl Host for LocalHost {
    fn describe(&self) -> String {
        format!("local, in {}", self.config.cwd.display())
    }

    fn is_connected(&self) -> bool {
        self.keeper.made().is_some()
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        let keeper = self.keeper().await?;
        let program = command.argv.first().cloned().unwrap_or_default();
        match keeper.spawn(self.spec(command)).await {
            Ok(process) => Ok(held::process(NAME, process)),
            Err(error) => Err(held::spawn_error(NAME, program, error)),
        }
    }

    fn files(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.files) as Arc<dyn Provider>
    }

    async fn connect(&self, to: Endpoint) -> Result<DuplexStream, HostError> {
        forward::connect(&self.config.cwd, to).await
    }

    async fn listen(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        forward::listen(&self.config.cwd, at).await
    }

    fn isolation(&self) -> Vec<Layer> {
        let supervision = self.keeper.made().map(|keeper| match keeper.holds_by() {
            Holds::Group => "processes are ended with the session by their control group",
            Holds::Tree => "processes are ended with the session by following their tree",
        });
        vec![Layer {
            kind: "local",
            host: NAME.to_owned(),
            files: "no wall: everything that the runner's user may read and write".to_owned(),
            network: "no wall: everything that this machine reaches".to_owned(),
            credentials: "no wall: whatever the runner's user has, in its home directory, its agents and its memory; the \
                runner keeps its own token out of environment and arguments, which does not stop a process with its rights \
                from reading it elsewhere"
                .to_owned(),
            processes: "no wall: sees all processes of this machine, and may end those of the runner's user, the runner too"
                .to_owned(),
            weakened: Vec::new(),
            supervision: supervision.map(str::to_owned),
        }]
    }

    async fn teardown(&self) -> Result<(), HostError> {
        if let Some(keeper) = self.keeper.made() {
            *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Ended::Yes;
            keeper.end().await;
        }
        Ok(())
    }
}
