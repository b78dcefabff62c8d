//! How an attempt ended, as the executor saw it.

use bulkhead_model::{Outcome, Usage};
use bulkhead_session::wire;

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
    /// The artifacts that arrived whole.
    pub artifacts: Vec<wire::FinishedArtifact>,
    /// Bytes of output that came after the limit: drained and counted.
    pub dropped_log_bytes: u64,
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
            dropped_log_bytes: 0,
        }
    }
}

impl From<wire::Report> for PhaseReport {
    fn from(report: wire::Report) -> Self {
        Self {
            outcome: report.outcome,
            failure: report.failure.map(PhaseFailure::from),
            head: report.head,
            usage: report.usage.unwrap_or_default(),
            result: report.result,
            artifacts: report.artifacts,
            dropped_log_bytes: report.dropped_log_bytes,
        }
    }
}

impl From<wire::Failure> for PhaseFailure {
    fn from(failure: wire::Failure) -> Self {
        let kind = match failure.kind {
            wire::FailureKind::Refused => FailureKind::Refused,
            wire::FailureKind::Work
            | wire::FailureKind::Protocol
            | wire::FailureKind::Plug { .. } => FailureKind::Failed,
            wire::FailureKind::Cap | wire::FailureKind::Limit => FailureKind::Limit,
            wire::FailureKind::Cancelled => FailureKind::Cancelled,
        };
        Self {
            kind,
            message: failure.message,
        }
    }
}
