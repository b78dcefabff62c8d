//! The order that takes a phase from the control plane to an executor. It holds no secret: secrets
//! travel beside it, in types that cannot be printed (D7).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ArtifactName, Fence, PhaseName, RunId, SecretName},
    limits::Limits,
    network::NetworkPolicy,
};

/// How an agent's standard input and output are read (H8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Acp,
    ClaudeStreamJson,
    CodexJson,
    Plain,
}

/// How to start an agent. Ready ones exist for the well-known command lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    pub name: String,
    /// The command; `{prompt}` stands for the prompt where the protocol does not carry it.
    pub argv: Vec<String>,
    pub protocol: Protocol,
    pub env: BTreeMap<String, String>,
    /// Files to write into the agent's home before it starts, by path below it.
    pub home_files: BTreeMap<String, String>,
}

/// A model API that the sandbox reaches through the gateway, without ever holding its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelGateway {
    /// The name of the upstream in the operator's configuration, for example `anthropic`.
    pub upstream: String,
    /// The environment variable that gets the gateway's loopback URL.
    pub url_env: String,
    /// The environment variable that gets the placeholder (the phase's own token).
    pub key_env: String,
    /// Appended to the gateway's URL, for clients that want `/v1` at the end of their base.
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    Agent {
        agent: AgentSpec,
        prompt: String,
    },
    /// A shell command; it needs no agent.
    Command {
        run: String,
    },
}

/// The repository as the sandbox sees it: through the gateway, one branch, one phase (D6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitOrder {
    /// The only ref that this phase may push, for example `refs/heads/bulkhead/run-…`.
    pub branch: String,
    /// The commit that the phase starts from; the clone is checked against it (case 39).
    pub start: String,
    /// What the commit that completes the phase is called.
    pub commit_message: String,
    pub author_name: String,
    pub author_email: String,
    /// What the repository needs besides a plain clone, as the look before the phase found it.
    #[serde(default)]
    pub extras: GitExtras,
}

/// Submodules and LFS of a repository, as the sandbox has to be prepared for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitExtras {
    /// Git settings for the sandbox, in order; `{gateway}` in a key stands for the gateway's URL there.
    pub config: Vec<(String, String)>,
    pub submodules: bool,
    pub lfs: bool,
}

/// Everything an executor needs to perform one attempt at one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseOrder {
    pub run: RunId,
    pub phase: PhaseName,
    pub phase_index: u32,
    /// Counts from 1; grows when a phase is sent back, retried or dispatched again.
    pub attempt: u32,
    pub fence: Fence,
    pub work: Work,
    /// None where the run has no repository.
    pub git: Option<GitOrder>,
    pub models: Vec<ModelGateway>,
    pub limits: Limits,
    pub network: NetworkPolicy,
    /// Directories outside `/usr` that the operator listed, mounted read-only at the same path.
    pub toolchains: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// The secrets that the phase names; their values travel beside the order.
    pub secrets: Vec<SecretName>,
    /// Artifacts of earlier phases, put at `/run/bulkhead/artifacts/NAME`.
    pub artifacts_in: Vec<ArtifactName>,
    /// Artifacts that this phase hands on: the name, and the path in the workspace.
    pub artifacts_out: BTreeMap<ArtifactName, String>,
    /// Turns and cost after which the agent is stopped, where its protocol reports them.
    pub max_turns: Option<u32>,
    pub max_cost_usd_milli: Option<u64>,
}
