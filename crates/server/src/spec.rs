//! What a run was started with: resolved once, kept as it was, and the source of every order.
//!
//! The workflow is read once, from the base commit (R1). The agents that it names are resolved then too, so that
//! neither a later commit nor a changed configuration can alter a run that a person has already looked at.

use std::collections::BTreeMap;

use bulkhead_git::RefName;
use bulkhead_model::{AgentSpec, CommitId, ModelGateway, workflow::Workflow};
use serde::{Deserialize, Serialize};

/// Kept beside the run's state; never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunSpec {
    pub(crate) created_by: String,
    pub(crate) repo: Option<RepoSpec>,
    /// The value of every input that the workflow declares.
    pub(crate) inputs: BTreeMap<String, String>,
    pub(crate) workflow: Workflow,
    /// One for each phase; none for a command.
    pub(crate) agents: Vec<Option<Agent>>,
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

/// The agent of a phase, as its name was resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Agent {
    pub(crate) spec: AgentSpec,
    pub(crate) models: Vec<ModelGateway>,
}

impl RunSpec {
    /// The model APIs that a phase may use.
    pub(crate) fn models(&self, index: usize) -> &[ModelGateway] {
        let agent = self.agents.get(index).and_then(Option::as_ref);
        agent.map_or(&[], |agent| &agent.models)
    }
}
