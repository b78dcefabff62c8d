//! Plugs: what makes a session out of an order, as an ordered list (H4).
//!
//! ```text
//! on_session   sandbox → door → environment → workspace → artifacts → agent
//! (the agent works)
//! finish       only after success:   artifacts → workspace    (reverse order)
//! teardown     always:               agent → … → sandbox      (reverse order)
//! ```
//!
//! Each handler has a time limit and an error that names the plug (H5). A plug whose `on_session` was begun
//! is torn down, whatever happened since; one teardown's error does not stop the others'.

mod agent;
mod artifacts;
mod door;
mod environment;
mod inside;
mod list;
mod sandbox;
mod workspace;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bulkhead_host::{ExitStatus, Host, HostError};
use bulkhead_model::Outcome;
use tokio::sync::mpsc;

use crate::{
    outbox::Outbox,
    wire::{ArtifactChunk, Delivery, FinishedArtifact},
};

pub(crate) use inside::RunError;
pub(crate) use list::{NamedError, Plugs};

/// What the plugs share.
pub(crate) struct Ctx {
    pub(crate) delivery: Box<Delivery>,
    pub(crate) out: Outbox,
    /// The innermost host so far: what a plug starts runs there. None before the first host plug, for there is
    /// no local host (R3).
    host: Option<Arc<dyn Host>>,
    /// The agent's whole environment; nothing is inherited (H7).
    pub(crate) agent_env: BTreeMap<String, String>,
    /// The artifacts of earlier phases, as they arrive.
    pub(crate) artifacts_in: Option<mpsc::Receiver<ArtifactChunk>>,
    /// What the phase came to so far.
    pub(crate) head: Option<String>,
    pub(crate) artifacts: Vec<FinishedArtifact>,
    pub(crate) outcome: Option<Outcome>,
}

impl Ctx {
    pub(crate) fn new(
        delivery: Box<Delivery>,
        out: Outbox,
        artifacts_in: mpsc::Receiver<ArtifactChunk>,
    ) -> Self {
        Self {
            delivery,
            out,
            host: None,
            agent_env: BTreeMap::new(),
            artifacts_in: Some(artifacts_in),
            head: None,
            artifacts: vec![],
            outcome: None,
        }
    }

    pub(crate) fn host(&self) -> Result<Arc<dyn Host>, PlugError> {
        self.host.clone().ok_or(PlugError::NoHost)
    }
}

/// How the work ended, for the teardowns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The process that counts ended so.
    Finished(ExitStatus),
    Idle,
    /// Cancelled, or something failed before or beside the agent.
    Cancelled,
}

/// What a plug's handler can fail with. The list adds the plug's name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlugError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("it took longer than its limit of {0:?}")]
    TimeLimit(Duration),
    #[error("no host comes before it")]
    NoHost,
    #[error("{0}")]
    Words(String),
    #[error("{what}")]
    Because {
        what: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// One built-in plug.
#[async_trait]
pub(crate) trait Plug: Send + Sync {
    fn name(&self) -> &'static str;

    /// How long each of its handlers may take.
    fn limit(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Before the agent. What it starts here, `teardown` ends.
    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError>;

    /// Between the agent's end and the plugs' finishing.
    async fn clear_away(&self) -> Result<(), PlugError> {
        Ok(())
    }

    /// After the agent succeeded.
    async fn finish(&mut self, _ctx: &mut Ctx) -> Result<(), PlugError> {
        Ok(())
    }

    /// At the end, always.
    async fn teardown(&mut self, _ctx: &mut Ctx, _ended: Ended) -> Result<(), PlugError> {
        Ok(())
    }
}
