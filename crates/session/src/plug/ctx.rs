//! What a plug is given.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use bulkhead_host::{FileSystem, Host};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{Journal, PlugError, Undo, UndoEntry};
use crate::{
    outbox::Outbox,
    results::Results,
    summary::{Given, IsolationSummary},
};

/// The session as its plugs see it. Each plug sees the host that the plugs before it made.
pub struct Ctx {
    /// The innermost host so far. None before the first host plug where isolation is mandatory: there is no
    /// local host then (R3).
    pub(super) host: Option<Arc<dyn Host>>,
    /// What the agent will be started with.
    pub agent: AgentDraft,
    pub session: SessionInfo,
    /// What the agent was given beyond its host, for the isolation summary (H16).
    pub(crate) grants: Vec<Grant>,
    pub(super) plug: String,
    pub(super) journal: Option<Journal>,
    signal: CancellationToken,
    pub(crate) out: Outbox,
    pub(crate) results: Results,
}

/// Which session this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    pub id: String,
    /// A private directory on the runner that is this session's own, where there is one.
    pub dir: Option<PathBuf>,
    /// Whether the session was begun before and goes on now (H15).
    pub resumed: bool,
}

/// What the agent will be started with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentDraft {
    /// The whole environment; nothing is inherited (H7).
    pub env: BTreeMap<String, String>,
    /// The working directory on the innermost host; none is that host's own.
    pub cwd: Option<String>,
    /// The program and its arguments, `{prompt}` not yet filled in.
    pub argv: Vec<String>,
    /// Servers of the Model Context Protocol that the agent is told of.
    pub mcp: Vec<McpServer>,
}

/// A server of the Model Context Protocol, as the agent reaches it from its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum McpServer {
    /// A program that the agent starts beside itself.
    #[serde(rename = "stdio")]
    Program {
        name: String,
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
    },
    #[serde(rename = "http")]
    Http {
        name: String,
        url: String,
        headers: BTreeMap<String, String>,
    },
}

/// Something that the agent got from a plug, in words; never a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Grant {
    /// A secret in a variable of this name.
    Secret {
        name: String,
        source: String,
    },
    Forward {
        from: String,
        to: String,
    },
    Mcp {
        name: String,
        at: String,
    },
    /// Anything else that a plug wants to be seen in the summary.
    Other {
        words: String,
    },
}

impl Ctx {
    pub(crate) fn new(session: SessionInfo, out: Outbox, signal: CancellationToken) -> Self {
        Self {
            host: None,
            agent: AgentDraft::default(),
            session,
            grants: vec![],
            plug: String::new(),
            journal: None,
            signal,
            out,
            results: Results::default(),
        }
    }

    /// The machine on which this plug's commands and files are. Having it does nothing: the first process, file
    /// operation or forward connects it (H2).
    pub fn host(&self) -> Result<Arc<dyn Host>, PlugError> {
        self.host.clone().ok_or(PlugError::NoHost)
    }

    /// Node's file system of [`Ctx::host`].
    pub fn files(&self) -> Result<FileSystem, PlugError> {
        Ok(FileSystem::new(self.host()?.files()))
    }

    /// Makes `host` the machine of all plugs after this one, and of the agent (H4).
    pub fn set_host(&mut self, host: Arc<dyn Host>) {
        self.host = Some(host);
    }

    pub(crate) fn keep_journal(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// Writes an undo step to the session's journal. Call it before the effect, and mark the entry done when the
    /// teardown has undone it. Only what this crate knows how to undo can be entered.
    pub fn undo(&self, what: Undo) -> Result<UndoEntry, PlugError> {
        match &self.journal {
            Some(journal) => Ok(journal.enter(what)?),
            None => Ok(UndoEntry::nowhere()),
        }
    }

    /// Notes what the agent got, for the isolation summary.
    pub fn grant(&mut self, grant: Grant) {
        self.grants.push(grant);
    }

    /// What the agent can reach on `host`, and what it was given.
    pub(crate) fn summary(&self, host: &dyn Host) -> IsolationSummary {
        let mut summary = IsolationSummary::of(host);
        summary.given = Given {
            env: self.agent.env.keys().cloned().collect(),
            grants: self.grants.clone(),
        };
        summary
    }

    /// Cancelled when the session is to end early.
    pub const fn signal(&self) -> &CancellationToken {
        &self.signal
    }

    /// A way to speak to whoever watches the session, in this plug's name, for as long as the session lives.
    pub fn log(&self) -> Log {
        Log {
            plug: self.plug.clone(),
            out: self.out.clone(),
        }
    }
}

/// A plug's voice. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Log {
    plug: String,
    out: Outbox,
}

impl Log {
    /// A line or more; waits while nobody reads.
    pub async fn say(&self, words: &str) {
        match self.plug.as_str() {
            "" => self.out.say(words).await,
            plug => self.out.say(&format!("{plug}: {words}")).await,
        }
    }
}
