//! What a plug is: code of the runner's owner that shapes a session, as one entry of an ordered list (H4, H5).
//!
//! ```text
//! on_session   first → last       describe hosts, prepare the machine, fill the agent's environment
//! (the agent works: every message passes the plugs that want messages)
//! finish       last → first       only after success
//! teardown     last → first       always: after a failure, a cancel or a signal too
//! ```
//!
//! All handlers run in the session's own process on the runner; only their effects happen on a host, and
//! [`Ctx::host`] is the only way to one. Each handler has a time limit and an error that names the plug. A plug
//! whose `on_session` was begun is torn down, whatever happened since, and sees the host that it saw then; one
//! teardown's error does not stop the others'.
//!
//! Messages pass the list like an onion: what goes to the agent passes the first plug first, what comes from it
//! the last plug first. An answer turns around where it is given, so it passes only the plugs on its way back.

mod ctx;
mod error;
mod journal;
mod list;
mod message;
mod script;
#[cfg(test)]
mod tests;
mod trial;

use std::time::Duration;

use async_trait::async_trait;

pub use ctx::{AgentDraft, Ctx, Grant, Log, McpServer, SessionInfo};
pub use error::{NamedError, PlugError};
pub(crate) use journal::{Journal, mark_done, read as read_journal};
pub use journal::{Undo, UndoEntry};
pub(crate) use list::{PlugPassage, Plugs};
pub use message::{Direction, Message, Passage, Straight, Verdict};
pub use script::{NoScripts, ScriptPlugs, ScriptSpec};
pub use trial::Trial;

/// How long a plug's handlers may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    pub on_session: Duration,
    pub on_message: Duration,
    pub finish: Duration,
    pub teardown: Duration,
}

impl TimeLimits {
    /// The same for everything but messages, which hold up the agent.
    pub const fn of(limit: Duration) -> Self {
        Self {
            on_session: limit,
            on_message: Duration::from_secs(10),
            finish: limit,
            teardown: limit,
        }
    }
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self::of(Duration::from_secs(60))
    }
}

/// How the work ended, for the teardowns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The process that counts ended so.
    Finished(bulkhead_host::ExitStatus),
    Idle,
    /// Cancelled, or something failed before or beside the agent.
    Cancelled,
    /// The session is to go on later: what outlives it stays.
    Paused,
}

/// One plug. A handler that is over its time limit is dropped where it waits: what must not be left half done
/// belongs into `teardown`, or into the journal.
#[async_trait]
pub trait Plug: Send + Sync {
    /// What errors call it.
    fn name(&self) -> &str;

    fn limits(&self) -> TimeLimits {
        TimeLimits::default()
    }

    /// Before the agent. What it starts here, `teardown` ends.
    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError>;

    /// Whether `on_message` is to be called at all.
    fn wants_messages(&self) -> bool {
        false
    }

    /// Each message between agent and runner, in both directions.
    async fn on_message(
        &mut self,
        _ctx: &mut Ctx,
        _message: &Message,
    ) -> Result<Verdict, PlugError> {
        Ok(Verdict::Pass)
    }

    /// Between the agent's end and the plugs' finishing.
    async fn clear_away(&self) -> Result<(), PlugError> {
        Ok(())
    }

    /// After the agent succeeded.
    async fn finish(&mut self, _ctx: &mut Ctx) -> Result<(), PlugError> {
        Ok(())
    }

    /// At the end, always.
    async fn teardown(&mut self, _ctx: &mut Ctx, _ended: Ended) -> Result<(), PlugError> {
        Ok(())
    }
}
