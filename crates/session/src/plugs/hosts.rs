//! The plugs that are hosts: each describes a machine, and does nothing else until something runs there (H2).

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bulkhead_host::{Host, LocalConfig, LocalHost, SandboxHost};
use bulkhead_model::{
    SandboxId,
    session::{HostPlug as HostConfig, SandboxConfig},
};
use bulkhead_sandbox::{Bind, BoundSocket, Plan, WORKSPACE_DIR, Workspace};
use tokio::sync::oneshot;

use super::{
    door::{DoorPlug, DoorSettings, Opens},
    environment::of_sandbox,
    sandbox::{engine, listeners},
};
use crate::{
    agents::BULKHEAD_INSIDE,
    plug::{Ctx, Ended, Plug, PlugError, Undo},
    session,
    wire::SessionDelivery,
};

/// The runner's own machine, as it is before any host plug: commands of plugs before the first act there (H4).
pub(super) struct RunnerPlug {
    host: Arc<LocalHost>,
}

impl RunnerPlug {
    pub(super) fn new(delivery: &SessionDelivery) -> Self {
        let order = &delivery.order;
        let config = local(delivery).cwd(&order.base);
        Self {
            host: Arc::new(LocalHost::new(config)),
        }
    }
}

fn local(delivery: &SessionDelivery) -> LocalConfig {
    let env = &delivery.order.local_env;
    let home = env.get("HOME").map_or("/", String::as_str);
    let config = LocalConfig::new(home);
    env.iter()
        .fold(config, |config, (name, value)| config.env(name, value))
}

#[async_trait]
impl Plug for RunnerPlug {
    fn name(&self) -> &str {
        "runner"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        ctx.set_host(self.host.clone());
        Ok(())
    }

    async fn teardown(&mut self, _: &mut Ctx, _: Ended) -> Result<(), PlugError> {
        Ok(self.host.teardown().await?)
    }
}

/// A host of the session's file.
pub(super) struct HostPlug {
    config: HostConfig,
    delivery: Arc<SessionDelivery>,
    host: Option<Arc<dyn Host>>,
    /// The sandbox's one way out.
    door: Option<DoorPlug>,
    undo: Option<crate::plug::UndoEntry>,
    directory: Option<PathBuf>,
}

impl HostPlug {
    pub(super) const fn new(config: HostConfig, delivery: Arc<SessionDelivery>) -> Self {
        Self {
            config,
            delivery,
            host: None,
            door: None,
            undo: None,
            directory: None,
        }
    }

    async fn local(&mut self, ctx: &mut Ctx, directory: Option<&str>) -> Result<(), PlugError> {
        let order = &self.delivery.order;
        let cwd = match directory {
            Some(directory) => session::path(order, directory),
            None => {
                let own = order.dir.join("workspace");
                self.undo = Some(ctx.undo(Undo::RemoveDirectory { path: own.clone() })?);
                self.directory = Some(own.clone());
                own
            }
        };
        let made = tokio::fs::create_dir_all(&cwd).await;
        made.map_err(|error| PlugError::because(format!("making {}", cwd.display()), error))?;
        ctx.agent.cwd = Some(cwd.to_string_lossy().into_owned());
        self.host = Some(Arc::new(LocalHost::new(local(&self.delivery).cwd(cwd))));
        Ok(())
    }

    async fn sandbox(&mut self, ctx: &mut Ctx, config: &SandboxConfig) -> Result<(), PlugError> {
        let outer = ctx.host()?;
        if !is_local(&*outer) {
            return self.wrapped(outer, config);
        }
        let (sender, receiver) = oneshot::channel();
        let hand_over = Box::new(move |sockets: Vec<BoundSocket>| drop(sender.send(sockets)));
        let machine = &self.delivery.machine;
        let plan = plan(config, &self.delivery);
        self.undo = Some(ctx.undo(Undo::Sandboxes {
            dir: machine.sandbox_dir.clone(),
        })?);
        self.host = Some(Arc::new(SandboxHost::new(engine(machine), plan, hand_over)));
        let settings = DoorSettings {
            network: config.network.clone(),
            machine: machine.clone(),
            gateway: None,
        };
        let mut door = DoorPlug::new(receiver, settings, Opens::WhenItStands);
        door.on_session(ctx).await?;
        self.door = Some(door);
        ctx.agent.env.extend(of_sandbox(&config.read_only, machine));
        ctx.agent.cwd = Some(WORKSPACE_DIR.to_owned());
        Ok(())
    }

    fn wrapped(&mut self, outer: Arc<dyn Host>, _: &SandboxConfig) -> Result<(), PlugError> {
        Err(PlugError::Refused(format!(
            "a sandbox on {} cannot be built by this version: put the sandbox on this machine, or leave it out",
            outer.describe()
        )))
    }
}

/// Whether processes of `host` are processes of the runner's machine, with nothing between.
pub(super) fn is_local(host: &dyn Host) -> bool {
    let layers = host.isolation();
    !layers.is_empty() && layers.iter().all(|layer| layer.kind == "local")
}

fn plan(config: &SandboxConfig, delivery: &SessionDelivery) -> Plan {
    let id = SandboxId::from_uuid(uuid::Uuid::now_v7());
    let mut plan = Plan::new(id, config.limits, Workspace::Image);
    plan.listeners = listeners();
    plan.binds = config.read_only.iter().map(Bind::same_path).collect();
    if let Some(program) = &delivery.program {
        plan.binds.push(Bind {
            source: program.clone(),
            target: BULKHEAD_INSIDE.into(),
        });
    }
    plan
}

#[async_trait]
impl Plug for HostPlug {
    fn name(&self) -> &str {
        self.config.kind()
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        match self.config.clone() {
            HostConfig::Local(config) => self.local(ctx, config.directory.as_deref()).await?,
            HostConfig::Sandbox(config) => self.sandbox(ctx, &config).await?,
            HostConfig::Docker(_) | HostConfig::Ssh(_) => {
                let kind = self.config.kind();
                return Err(PlugError::Refused(format!(
                    "the host {kind} is not part of this version"
                )));
            }
        }
        if let Some(host) = &self.host {
            ctx.set_host(Arc::clone(host));
        }
        Ok(())
    }

    async fn teardown(&mut self, ctx: &mut Ctx, ended: Ended) -> Result<(), PlugError> {
        let down = match self.host.take() {
            Some(host) => host.teardown().await,
            None => Ok(()),
        };
        if let Some(mut door) = self.door.take() {
            door.teardown(ctx, ended).await?;
        }
        if let Some(directory) = self.directory.take().filter(|_| ended != Ended::Paused) {
            let removed = tokio::fs::remove_dir_all(&directory).await;
            if let Err(error) = removed
                && error.kind() != std::io::ErrorKind::NotFound
            {
                let what = format!("removing {}", directory.display());
                return Err(PlugError::because(what, error));
            }
        }
        down?;
        if let Some(undo) = self.undo.take() {
            undo.done()?;
        }
        Ok(())
    }
}
