//! How an attempt ended, as the executor saw it.

use bulkhead_model::{ArtifactName, Outcome, Usage};

/// The one answer of an executor to one order. The attempt succeeded exactly when `failure` is none.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseReport {
    /// How the sandbox's main work ended; none where no sandbox came into being.
    pub outcome: Option<Outcome>,
    pub failure: Option<PhaseFailure>,
    /// The commit that the phase pushed. The control plane believes its own git gateway, not this.
    pub head: Option<String>,
    pub usage: Usage,
    /// The agent's own closing words.
    pub result: Option<String>,
    pub artifacts: Vec<ArtifactName>,
}

/// Why an attempt did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PhaseFailure {
    pub kind: FailureKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// A boundary could not be built (R3): there is no fallback without it.
    Refused,
    /// The work itself, or a step around it, failed; the outcome says how.
    Failed,
    /// A limit of time, resources, turns or cost was reached.
    Limit,
    Cancelled,
    /// The session process went away without a report, or its lease was lost.
    Lost,
}

impl PhaseReport {
    /// A report of an attempt that never had an outcome.
    pub fn without_outcome(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            outcome: None,
            failure: Some(PhaseFailure {
                kind,
                message: message.into(),
            }),
            head: None,
            usage: Usage::default(),
            result: None,
            artifacts: Vec::new(),
        }
    }
}
