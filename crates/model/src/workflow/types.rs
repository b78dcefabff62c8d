//! A workflow with every default filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::template::Template;
use crate::{
    gate::GatePolicy,
    ids::{ArtifactName, Label, PhaseName, SecretName},
    limits::Limits,
    network::NetworkPolicy,
    order::Protocol,
    run::{PhasePlan, Plan, PlanError, Repository, RunCaps},
};

/// What a run executes: read from a file of the trusted base commit, then never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    pub name: String,
    pub description: Option<String>,
    pub inputs: BTreeMap<String, Input>,
    /// The secrets that phases may name.
    pub secrets: Vec<SecretName>,
    pub workspace: Workspace,
    pub caps: RunCaps,
    /// In the order in which they run; at least one.
    pub phases: Vec<PhaseSpec>,
}

/// Something that whoever starts a run may say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub description: Option<String>,
    /// What counts where nothing is said; none means that the input is required or empty.
    pub default: Option<String>,
    pub presence: Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    Required,
    Optional,
}

/// How a phase gets its files (R12).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workspace {
    /// Cloned anew for every phase.
    #[default]
    Fresh,
    /// One volume for the run, hard-reset to the branch before every phase.
    Cached,
}

/// One phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    pub name: PhaseName,
    pub work: WorkSpec,
    /// The labels that a runner must have.
    pub needs: Vec<Label>,
    pub without_runner: WithoutRunner,
    pub limits: Limits,
    pub network: NetworkPolicy,
    /// Those that the phase names and those that the defaults name for all.
    pub secrets: Vec<SecretName>,
    pub env: BTreeMap<String, String>,
    /// Names from the operator's list.
    pub toolchains: Vec<String>,
    pub gate: GatePolicy,
    pub artifacts: Artifacts,
    pub caps: PhaseCaps,
    /// How often a failed attempt is repeated before the phase parks.
    pub retries: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WorkSpec {
    Agent {
        agent: AgentChoice,
        prompt: Template,
    },
    Command {
        run: String,
    },
}

/// Which agent does a phase's work, and what the workflow changes about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentChoice {
    /// A ready definition's name, or, with a command, any name.
    pub name: String,
    pub model: Option<String>,
    /// Instead of a ready definition: what to start in the sandbox.
    pub command: Option<Vec<String>>,
    pub protocol: Option<Protocol>,
    pub env: BTreeMap<String, String>,
}

/// What happens to a phase that needs labels while no runner at all is connected (R10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithoutRunner {
    /// It runs in the control plane's own sandbox.
    RunHere,
    Wait,
}

/// What a phase hands on and gets handed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifacts {
    /// Name, and path in the workspace.
    pub out: BTreeMap<ArtifactName, String>,
    pub r#in: Vec<ArtifactName>,
}

/// What one attempt of a phase may spend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseCaps {
    pub cost_micro_usd: Option<u64>,
    pub turns: Option<u32>,
}

impl Workflow {
    /// What the run's machine needs to know.
    ///
    /// # Errors
    /// For a workflow that no file can hold: without phases, or with two of one name.
    pub fn plan(&self, repository: Repository) -> Result<Plan, PlanError> {
        let phases = self.phases.iter().map(|phase| PhasePlan {
            name: phase.name.clone(),
            gate: phase.gate.clone(),
            retries: phase.retries,
        });
        Plan::new(phases.collect(), repository, self.caps)
    }
}
