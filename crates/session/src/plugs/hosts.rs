//! The plugs that are hosts: each describes a machine, and does nothing else until something runs there (H2).

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bulkhead_host::{Host, LocalHost};
use bulkhead_model::session::{DockerConfig, HostPlug as HostConfig, SshConfig};
use bulkhead_sandbox::{BoundSocket, WORKSPACE_DIR};
use tokio::sync::oneshot;

use super::{
    door::{DoorPlug, DoorSettings, Opens},
    environment::of_sandbox,
};
use crate::{
    hosts::{self, Place, Sandboxed},
    plug::{Ctx, Ended, Plug, PlugError, Undo, UndoEntry},
    session,
    wire::SessionDelivery,
};

/// The runner's own machine, as it is before any host plug: commands of plugs before the first act there (H4).
pub(super) struct RunnerPlug {
    host: Arc<LocalHost>,
}

impl RunnerPlug {
    pub(super) fn new(delivery: &SessionDelivery) -> Self {
        let place = Place::of(delivery);
        Self {
            host: Arc::new(hosts::local(&place, &place.base)),
        }
    }
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
    /// The hosts that lead to it, for the journal.
    through: Vec<HostConfig>,
    delivery: Arc<SessionDelivery>,
    host: Option<Arc<dyn Host>>,
    /// The sandbox's one way out.
    door: Option<DoorPlug>,
    undo: Vec<UndoEntry>,
    /// A directory of the runner that goes with the session.
    directory: Option<PathBuf>,
}

impl HostPlug {
    pub(super) const fn new(
        config: HostConfig,
        through: Vec<HostConfig>,
        delivery: Arc<SessionDelivery>,
    ) -> Self {
        Self {
            config,
            through,
            delivery,
            host: None,
            door: None,
            undo: vec![],
            directory: None,
        }
    }

    async fn local(&mut self, ctx: &mut Ctx, directory: Option<&str>) -> Result<(), PlugError> {
        let order = &self.delivery.order;
        let cwd = match directory {
            Some(directory) => session::path(order, directory),
            None => {
                let own = order.dir.join("workspace");
                let undo = Undo::RemoveDirectory { path: own.clone() };
                self.undo.push(ctx.undo(undo)?);
                self.directory = Some(own.clone());
                own
            }
        };
        let made = tokio::fs::create_dir_all(&cwd).await;
        made.map_err(|error| PlugError::because(format!("making {}", cwd.display()), error))?;
        ctx.agent.cwd = Some(cwd.to_string_lossy().into_owned());
        self.host = Some(Arc::new(hosts::local(&Place::of(&self.delivery), &cwd)));
        Ok(())
    }

    async fn sandbox(&mut self, ctx: &mut Ctx, config: Sandboxed<'_>) -> Result<(), PlugError> {
        let outer = ctx.host()?;
        let machine = &self.delivery.machine;
        if !hosts::is_local(&*outer) {
            self.host = Some(hosts::wrapped(outer, config)?);
            ctx.agent.cwd = None;
            return Ok(());
        }
        let (sender, receiver) = oneshot::channel();
        let hand_over = Box::new(move |sockets: Vec<BoundSocket>| drop(sender.send(sockets)));
        self.undo.push(ctx.undo(Undo::Sandboxes {
            dir: machine.sandbox_dir.clone(),
        })?);
        let place = Place::of(&self.delivery);
        self.host = Some(Arc::new(hosts::sandbox(&place, config, hand_over)));
        let settings = DoorSettings {
            network: config.0.network.clone(),
            machine: machine.clone(),
            gateway: None,
        };
        let mut door = DoorPlug::new(receiver, settings, Opens::WhenItStands);
        door.on_session(ctx).await?;
        self.door = Some(door);
        ctx.agent
            .env
            .extend(of_sandbox(&config.0.read_only, machine));
        ctx.agent.cwd = Some(WORKSPACE_DIR.to_owned());
        Ok(())
    }

    fn docker(&mut self, ctx: &mut Ctx, config: &DockerConfig) -> Result<(), PlugError> {
        let lost_after = match self.through.last() {
            Some(HostConfig::Ssh(ssh)) if ssh.persistent => Some(hosts::LOST_AFTER_SECONDS),
            _ => None,
        };
        let host = hosts::docker(&Place::of(&self.delivery), ctx.host()?, config, lost_after);
        self.undo.push(ctx.undo(Undo::Container {
            name: host.container_name().to_owned(),
            socket: hosts::engine_socket(config),
            through: self.through.clone(),
        })?);
        self.host = Some(Arc::new(host));
        ctx.agent.cwd.clone_from(&config.workdir);
        Ok(())
    }

    async fn ssh(&mut self, ctx: &mut Ctx, config: &SshConfig) -> Result<(), PlugError> {
        let directory = hosts::short_directory(&ctx.session.id);
        let undo = Undo::RemoveDirectory {
            path: directory.clone(),
        };
        self.undo.push(ctx.undo(undo)?);
        hosts::make_short_directory(&ctx.session.id)?;
        self.directory = Some(directory.clone());
        self.host = Some(hosts::ssh(
            &Place::of(&self.delivery),
            ctx.host()?,
            config,
            &directory,
        ));
        ctx.agent.cwd.clone_from(&config.directory);
        Ok(())
    }
}

#[async_trait]
impl Plug for HostPlug {
    fn name(&self) -> &str {
        self.config.kind()
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        match self.config.clone() {
            HostConfig::Local(config) => self.local(ctx, config.directory.as_deref()).await?,
            HostConfig::Sandbox(config) => self.sandbox(ctx, Sandboxed(&config)).await?,
            HostConfig::Docker(config) => self.docker(ctx, &config)?,
            HostConfig::Ssh(config) => self.ssh(ctx, &config).await?,
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
        let keeps = ended == Ended::Paused && matches!(self.config, HostConfig::Local(_));
        if let Some(directory) = self.directory.take().filter(|_| !keeps) {
            let removed = tokio::fs::remove_dir_all(&directory).await;
            if let Err(error) = removed
                && error.kind() != std::io::ErrorKind::NotFound
            {
                let what = format!("removing {}", directory.display());
                return Err(PlugError::because(what, error));
            }
        }
        down?;
        for undo in self.undo.drain(..) {
            undo.done()?;
        }
        Ok(())
    }
}
