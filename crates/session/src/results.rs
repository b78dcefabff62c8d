//! What the session came to so far, as its built-in plugs note it for the report.

use bulkhead_model::Outcome;

use crate::{protocol::Conversation, wire::FinishedArtifact};

#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) head: Option<String>,
    pub(crate) artifacts: Vec<FinishedArtifact>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) conversation: Option<Conversation>,
}
