//! What a run was started with: resolved once, kept as it was, and the source of every order.
//!
//! The workflow is read once, from the base commit (R1). What its names stand for (agents, presets) is
//! resolved then too, so that neither a later commit nor a changed configuration can alter a run that a
//! person has already looked at.

use std::collections::BTreeMap;

use bulkhead_git::RefName;
use bulkhead_model::{
    AgentSpec, ArtifactName, CommitId, Digest, Limits, ModelGateway, NetworkPolicy, PhaseName,
    SecretName, workflow::Template,
};
use serde::{Deserialize, Serialize};

/// Kept beside the run's state; never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunSpec {
    pub(crate) name: String,
    pub(crate) created_by: String,
    pub(crate) repo: Option<RepoSpec>,
    pub(crate) inputs: BTreeMap<String, String>,
    /// One for each phase of the plan, in its order.
    pub(crate) phases: Vec<PhaseSpec>,
}

/// The repository of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RepoSpec {
    /// A path or URL, as the caller gave it.
    pub(crate) source: String,
    /// What the caller called the base.
    pub(crate) base: String,
    pub(crate) base_commit: CommitId,
    pub(crate) branch: RefName,
}

/// One phase with everything filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PhaseSpec {
    pub(crate) name: PhaseName,
    pub(crate) work: WorkPlan,
    pub(crate) policy: PhasePolicy,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) artifacts_in: Vec<ArtifactName>,
    pub(crate) artifacts_out: BTreeMap<ArtifactName, String>,
}

/// What a phase does. The prompt is filled in at each dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum WorkPlan {
    Agent { agent: AgentSpec, prompt: Template },
    Command { run: String },
}

/// What a phase may do and use: the part of a gate's binding that is called the effective policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PhasePolicy {
    pub(crate) limits: Limits,
    pub(crate) network: NetworkPolicy,
    pub(crate) models: Vec<ModelGateway>,
    pub(crate) toolchains: Vec<String>,
    pub(crate) secrets: Vec<SecretName>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) max_cost_usd_milli: Option<u64>,
}

impl RunSpec {
    /// Digests of the phase that an answer would start, and of its policy; of nothing after the last.
    pub(crate) fn digests(
        &self,
        next: Option<usize>,
    ) -> Result<(Digest, Digest), serde_json::Error> {
        let phase = next.and_then(|index| self.phases.get(index));
        let policy = phase.map(|phase| &phase.policy);
        Ok((
            Digest::of_value("next-phase", &phase)?,
            Digest::of_value("effective-policy", &policy)?,
        ))
    }
}
