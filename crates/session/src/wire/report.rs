//! The last word of a session.

use bulkhead_model::{ArtifactName, Outcome, Usage};
use serde::{Deserialize, Serialize};

use crate::protocol::Conversation;

/// How the phase went. The phase succeeded exactly when `failure` is none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How the sandbox's main work ended; none where no sandbox came into being.
    pub outcome: Option<Outcome>,
    pub failure: Option<Failure>,
    /// The commit that was pushed to the run's branch; none where nothing changed or nothing was pushed.
    pub head: Option<String>,
    /// What the agent said it used; none where it said nothing.
    pub usage: Option<Usage>,
    /// The agent's own closing words.
    pub result: Option<String>,
    /// The artifacts that were sent whole.
    pub artifacts: Vec<FinishedArtifact>,
    /// Bytes of output that came after the limit: drained, counted, not kept.
    pub dropped_log_bytes: u64,
    /// By what the agent knows the conversation, where it said so: what a paused session goes on with.
    #[serde(default)]
    pub conversation: Option<Conversation>,
    /// Whether the session was paused, and so is to go on.
    #[serde(default)]
    pub paused: bool,
}

/// One artifact that arrived completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedArtifact {
    pub name: ArtifactName,
    pub kind: ArtifactKind,
    pub size_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    File,
    /// A tar archive, made and opened inside sandboxes only: its names are an agent's and not to be trusted.
    Directory,
}

/// Why a phase did not succeed, in words that tell the user what to do where something can be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FailureKind {
    /// The sandbox could not be built, so nothing ran (R3).
    Refused,
    /// The agent or command itself failed; the outcome says how.
    Work,
    /// The agent's output broke its protocol.
    Protocol,
    /// A cap on turns or cost was reached.
    Cap,
    /// A limit of time or resources was reached; the outcome says which.
    Limit,
    Cancelled,
    /// A plug failed; `plug` is its name, for example `workspace`.
    Plug {
        plug: String,
    },
}
