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
mod door;
mod environment;
mod inside;
mod sandbox;
mod workspace;

use std::sync::Arc;

use tokio::sync::mpsc;

use self::{
    agent::AgentPlug, artifacts::ArtifactsPlug, door::DoorPlug, environment::EnvironmentPlug,
    sandbox::SandboxPlug, workspace::WorkspacePlug,
};
use crate::{
    plug::{Plug, Plugs},
    wire::{ArtifactChunk, Delivery},
};

pub(crate) use inside::RunError;

/// The plugs of a phase.
pub(crate) fn of_phase(
    delivery: &Arc<Delivery>,
    artifacts: mpsc::Receiver<ArtifactChunk>,
) -> Plugs {
    let (sandbox, listeners) = SandboxPlug::new(delivery);
    let mut list: Vec<Box<dyn Plug>> = vec![
        Box::new(sandbox),
        Box::new(DoorPlug::new(listeners, Arc::clone(delivery))),
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
