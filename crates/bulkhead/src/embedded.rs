//! The control plane inside this process: the wiring that `serve`, `run` and `demo` share.

use std::{
    net::Ipv4Addr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bulkhead_runner::{BuiltinConfig, BuiltinExecutor};
use bulkhead_server::{Config, ControlPlane, Recovered};
use bulkhead_session::wire::Machine;
use bulkhead_store::Error as StoreError;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    commands::{sandbox_dir, secrets::master_key},
    config::OperatorConfig,
    control::published::{self, Published},
    environment::{self, Environment},
    output::Output,
};

/// Whether the control plane is to move runs, or only to tell of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Move,
    Look,
}

/// Whether the data directory could not be opened because another process holds it.
pub(crate) fn is_in_use(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(StoreError::InUse { .. })))
}

/// How long a process that comes to work waits for those that hold the data directory and answer nowhere: commands that
/// only look, each for a moment.
const PATIENCE: Duration = Duration::from_secs(30);

/// As [`open`], after commands that only look; not after another server, which says where it answers.
pub(crate) async fn open_to_work(
    data_dir: &Path,
    operator: &OperatorConfig,
    environment: &Environment,
    output: Output,
) -> Result<ControlPlane> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match open(data_dir, operator, environment, Work::Move, output).await {
            Err(error)
                if is_in_use(&error)
                    && published::read(data_dir).is_none()
                    && Instant::now() < deadline => {}
            opened => return opened,
        }
    }
}

/// Opens the data directory as the one server of it, and, where asked to, begins to work.
pub(crate) async fn open(
    data_dir: &Path,
    operator: &OperatorConfig,
    environment: &Environment,
    work: Work,
    output: Output,
) -> Result<ControlPlane> {
    let executor =
        BuiltinExecutor::new(executor(data_dir, operator)?).context("preparing the executor")?;
    let mut config = config(data_dir, operator, environment)?;
    if work == Work::Move {
        config.patience = Duration::from_secs(1);
    }
    let plane = ControlPlane::open(config, Arc::new(executor)).await?;
    if work == Work::Move {
        tell(&plane.start().await?, output);
    }
    Ok(plane)
}

/// Answers this user's other processes (`bulkhead runs approve` in another window, say) for as long as it lives.
pub(crate) struct Answering {
    stop: CancellationToken,
    serving: JoinSet<std::io::Result<()>>,
    _published: Published,
}

impl Answering {
    pub(crate) async fn begin(plane: &ControlPlane, data_dir: &Path) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("listening for this user's other processes")?;
        let address = listener
            .local_addr()
            .context("reading the listener's address")?;
        // Made now where it was not yet: it is what the others show.
        plane.first_token().await?;
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let (plane, stopped) = (plane.clone(), stop.clone());
        serving.spawn(async move { plane.serve(listener, stopped).await });
        Ok(Self {
            stop,
            serving,
            _published: Published::write(data_dir, address)?,
        })
    }

    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        while self.serving.join_next().await.is_some() {}
    }
}

fn config(data_dir: &Path, operator: &OperatorConfig, environment: &Environment) -> Result<Config> {
    let mut config = Config::new(data_dir.to_owned(), data_dir.join("run"));
    if let Some(author) = &operator.author {
        config.author_name.clone_from(&author.name);
        config.author_email.clone_from(&author.email);
    }
    config.models = operator.models(environment)?;
    config.git_credentials = operator.git_credentials(environment)?;
    config.submodules = operator.submodules();
    config.toolchains.clone_from(&operator.toolchains);
    config.notify = operator.notify();
    operator.retain(&mut config.retention);
    config.proxy = operator.proxy.as_ref().map(|proxy| proxy.0.clone());
    config.ca_file.clone_from(&operator.ca_file);
    config
        .allow_private_hosts
        .clone_from(&operator.allow_private);
    config.allowed_hosts.clone_from(&operator.allowed_hosts);
    config.master_key = master_key(environment);
    Ok(config)
}

fn executor(data_dir: &Path, operator: &OperatorConfig) -> Result<BuiltinConfig> {
    let program = environment::own_program()?;
    let run_dir = data_dir.join("run");
    Ok(BuiltinConfig {
        args: vec!["session-worker".into()],
        offered_program: Some(program.clone()),
        program,
        machine: Machine {
            extra_ca_pem: operator.ca_pem()?,
            proxy: operator.proxy_secret(),
            allow_private: operator.allow_private.clone(),
            ..Machine::new(sandbox_dir(data_dir))
        },
        places: operator.places.unwrap_or_else(default_places),
        run_dir,
    })
}

/// As many phases as there are CPUs: each may use two, but agents mostly wait for their model.
fn default_places() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn tell(recovered: &Recovered, output: Output) {
    for phase in &recovered.completed {
        output.note(format_args!("Found pushed, so it is done: {phase}"));
    }
    for phase in &recovered.dispatched_again {
        output.note(format_args!("Was in flight, begins again: {phase}"));
    }
    for orphan in &recovered.orphans {
        match &orphan.left {
            None => output.note(format_args!(
                "Ended what an earlier life left: {} {}",
                orphan.kind, orphan.what
            )),
            Some(why) => output.note(format_args!(
                "Could not end {} {}: {why}",
                orphan.kind, orphan.what
            )),
        }
    }
}
