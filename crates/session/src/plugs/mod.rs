//! The built-in plugs.
//!
//! A phase's list, in which the sandbox comes first and cannot be left out (R3):
//!
//! ```text
//! on_session   sandbox → door → environment → workspace → artifacts → agent
//! (the agent works)
//! finish       only after success:   artifacts → workspace    (reverse order)
//! teardown     always:               agent → … → sandbox      (reverse order)
//! ```

mod agent;
mod artifacts;
mod copy;
mod door;
mod environment;
mod hosts;
mod inside;
mod mcp;
mod ports;
mod record;
mod sandbox;
mod setup;
mod start;
mod unpack;
mod variables;
mod workspace;

use std::{path::Path, sync::Arc};

use bulkhead_model::{
    Work,
    session::{PlugConfig, ScriptConfig},
};
use tokio::sync::mpsc;

use self::{
    agent::AgentPlug,
    artifacts::ArtifactsPlug,
    copy::CopyPlug,
    door::{DoorPlug, DoorSettings, Opens},
    environment::EnvironmentPlug,
    hosts::{HostPlug, RunnerPlug},
    mcp::McpPlug,
    ports::PortsPlug,
    record::RecordPlug,
    sandbox::SandboxPlug,
    setup::{FilesPlug, SetupPlug},
    start::StartPlug,
    variables::{EnvPlug, SecretsPlug},
    workspace::WorkspacePlug,
};
use crate::{
    plug::{Ctx, NamedError, Plug, PlugError, Plugs, ScriptPlugs, ScriptSpec},
    session,
    wire::{ArtifactChunk, Delivery, SessionDelivery},
};

pub(crate) use inside::RunError;
pub(crate) use sandbox::listeners as door_listeners;

/// The plugs of a phase.
pub(crate) fn of_phase(
    delivery: &Arc<Delivery>,
    artifacts: mpsc::Receiver<ArtifactChunk>,
) -> Plugs {
    let (sandbox, listeners) = SandboxPlug::new(delivery);
    let door = DoorSettings {
        network: delivery.order.network.clone(),
        machine: delivery.machine.clone(),
        gateway: Some(delivery.gateway_socket.clone()),
    };
    let mut list: Vec<Box<dyn Plug>> = vec![
        Box::new(sandbox),
        Box::new(DoorPlug::new(listeners, door, Opens::Now)),
        Box::new(EnvironmentPlug(Arc::clone(delivery))),
    ];
    if let Some(git) = &delivery.order.git {
        let token = delivery.phase_token.clone();
        list.push(Box::new(WorkspacePlug::new(git.clone(), token)));
    }
    list.push(Box::new(ArtifactsPlug::new(
        Arc::clone(delivery),
        artifacts,
    )));
    list.push(Box::new(AgentPlug(Arc::clone(delivery))));
    Plugs::new(list)
}

/// The plugs of a session's file, in its order, between the runner's machine and the agent.
pub(crate) async fn of_session(
    delivery: &Arc<SessionDelivery>,
    scripts: &dyn ScriptPlugs,
    ctx: &mut Ctx,
) -> Result<Vec<Box<dyn Plug>>, NamedError> {
    let order = &delivery.order;
    if let Work::Agent { agent, .. } = &order.work {
        ctx.agent.argv.clone_from(&agent.argv);
    }
    let hosts = |plug: &PlugConfig| matches!(plug, PlugConfig::Host(_) | PlugConfig::Script(_));
    if !order.plugs.iter().any(hosts) {
        let words = "no plug says where the agent runs: add `sandbox` (isolated), `docker`, `ssh`, or `local` (no \
                     isolation: the agent has your rights)";
        return Err(NamedError::of(
            "agent",
            PlugError::Refused(words.to_owned()),
        ));
    }
    let mut list: Vec<Box<dyn Plug>> = vec![Box::new(RunnerPlug::new(delivery))];
    let mut through = vec![];
    for config in &order.plugs {
        if let PlugConfig::Host(host) = config {
            list.push(Box::new(HostPlug::new(
                host.clone(),
                through.clone(),
                Arc::clone(delivery),
            )));
            through.push(host.clone());
        } else {
            list.push(built_in(config.clone(), delivery, scripts).await?);
        }
    }
    list.push(Box::new(StartPlug(Arc::clone(delivery))));
    Ok(list)
}

async fn built_in(
    config: PlugConfig,
    delivery: &Arc<SessionDelivery>,
    scripts: &dyn ScriptPlugs,
) -> Result<Box<dyn Plug>, NamedError> {
    let ours = Arc::clone(delivery);
    Ok(match config {
        PlugConfig::Host(config) => Box::new(HostPlug::new(config, vec![], ours)),
        PlugConfig::Workspace(config) => Box::new(CopyPlug::new(config, ours)),
        PlugConfig::Env(env) => Box::new(EnvPlug(env)),
        PlugConfig::Files(files) => Box::new(FilesPlug::new(files, ours)),
        PlugConfig::Setup(steps) => Box::new(SetupPlug::new(steps)),
        PlugConfig::Secrets(secrets) => Box::new(SecretsPlug::new(secrets, ours)),
        PlugConfig::Ports(ports) => Box::new(PortsPlug::new(ports)),
        PlugConfig::Mcp(servers) => Box::new(McpPlug::new(servers, ours.order.work.clone())),
        PlugConfig::Record(config) => Box::new(RecordPlug::new(&config, ours)),
        PlugConfig::Script(script) => {
            let spec = script_spec(script, delivery);
            let name = spec.name.clone();
            let loaded = scripts.load(spec).await;
            loaded.map_err(|source| NamedError::of(&name, source))?
        }
    })
}

fn script_spec(script: ScriptConfig, delivery: &SessionDelivery) -> ScriptSpec {
    let file = session::path(&delivery.order, &script.file);
    let own = Path::new(&script.file).file_name();
    let name = script
        .name
        .or_else(|| Some(own?.to_string_lossy().into_owned()));
    ScriptSpec {
        name: name.unwrap_or_else(|| script.file.clone()),
        file,
        config: script.config,
    }
}
