//! The order of a session that is no phase.

use std::{collections::BTreeMap, path::PathBuf};

use bulkhead_model::{Work, session::PlugConfig};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::Machine;
use crate::protocol::Conversation;

/// What is to be done, without anything secret. It is kept in the session's directory, so that a paused session can
/// be taken up again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOrder {
    pub id: String,
    pub name: Option<String>,
    /// The session's own private directory on the runner.
    pub dir: PathBuf,
    /// What relative paths of the session's file start from.
    pub base: PathBuf,
    /// The agent with its first prompt (empty: it waits for one), or the command.
    pub work: Work,
    pub plugs: Vec<PlugConfig>,
    pub idle_ms: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub max_turns: Option<u32>,
    pub max_cost_usd_milli: Option<u64>,
    /// What processes on the runner's own machine find: `HOME`, `PATH` and the like. Nothing else is inherited.
    pub local_env: BTreeMap<String, String>,
    /// What the `ssh` program finds besides: where its agent is.
    pub ssh_env: BTreeMap<String, String>,
    pub prompts: PromptSource,
    /// The conversation that the session goes on with; none begins one.
    pub resume: Option<Resume>,
}

/// Where prompts after the first come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptSource {
    /// There are none: the session ends with the first turn.
    None,
    /// A person, message by message.
    Person,
}

/// A session that goes on after a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// None where the agent never named its conversation.
    pub conversation: Option<Conversation>,
}

/// A session's order with what must never be written down.
#[derive(Debug, Clone)]
pub struct SessionDelivery {
    pub order: SessionOrder,
    /// The values of the declared secrets, by the variable that carries each.
    pub secrets: BTreeMap<String, SecretString>,
    /// The program to offer on hosts as `bulkhead`, where they are on this machine.
    pub program: Option<PathBuf>,
    pub machine: Machine,
}

/// The delivery's form on the wire.
#[derive(Serialize, Deserialize)]
pub(super) struct WireSession {
    order: SessionOrder,
    secrets: BTreeMap<String, String>,
    program: Option<PathBuf>,
    sandbox_dir: PathBuf,
    extra_ca_pem: Option<String>,
    proxy: Option<String>,
    allow_private: Vec<String>,
}

impl From<&SessionDelivery> for WireSession {
    fn from(delivery: &SessionDelivery) -> Self {
        let exposed = |secret: &SecretString| secret.expose_secret().to_owned();
        let secrets = delivery.secrets.iter();
        Self {
            order: delivery.order.clone(),
            secrets: secrets
                .map(|(name, value)| (name.clone(), exposed(value)))
                .collect(),
            program: delivery.program.clone(),
            sandbox_dir: delivery.machine.sandbox_dir.clone(),
            extra_ca_pem: delivery.machine.extra_ca_pem.clone(),
            proxy: delivery.machine.proxy.as_ref().map(exposed),
            allow_private: delivery.machine.allow_private.clone(),
        }
    }
}

impl From<WireSession> for SessionDelivery {
    fn from(wire: WireSession) -> Self {
        let secrets = wire.secrets.into_iter();
        Self {
            order: wire.order,
            secrets: secrets.map(|(name, value)| (name, value.into())).collect(),
            program: wire.program,
            machine: Machine {
                sandbox_dir: wire.sandbox_dir,
                extra_ca_pem: wire.extra_ca_pem,
                proxy: wire.proxy.map(SecretString::from),
                allow_private: wire.allow_private,
            },
        }
    }
}
