//! A plug without a session around it, for those who test plugs of their own kind.

use std::sync::Arc;

use bulkhead_host::Host;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{AgentDraft, Ctx, SessionInfo};
use crate::{outbox::Outbox, wire::FromSession};

/// What the log of a trial may hold.
const LOG_BYTES: u64 = 1 << 20;

/// A context to call a plug's handlers with, and what they said.
pub struct Trial {
    pub ctx: Ctx,
    said: mpsc::Receiver<FromSession>,
}

impl Trial {
    /// A session that is about to begin a plug of this name on `host`.
    pub fn new(
        plug: &str,
        session: SessionInfo,
        host: Option<Arc<dyn Host>>,
        agent: AgentDraft,
        signal: CancellationToken,
    ) -> Self {
        let (out, said) = Outbox::new(LOG_BYTES);
        let mut ctx = Ctx::new(session, out, signal);
        plug.clone_into(&mut ctx.plug);
        ctx.host = host;
        ctx.agent = agent;
        Self { ctx, said }
    }

    /// The lines said since the last call.
    pub fn said(&mut self) -> Vec<String> {
        let mut lines = vec![];
        while let Ok(message) = self.said.try_recv() {
            if let FromSession::Log { data, .. } = message {
                let text = String::from_utf8_lossy(&data);
                lines.extend(text.lines().map(str::to_owned));
            }
        }
        lines
    }
}
