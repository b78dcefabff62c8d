//! How agents speak, turned into the one event model (H8, D13).
//!
//! Each protocol is sans-IO: a line in, a [`Step`] out. [`drive`](drive::drive) connects one to an agent's
//! standard input and output. One bad line ends one session, with an error that names the line.

mod acp;
mod claude;
mod codex;
mod drive;
mod json;
mod lines;
mod text;

use bulkhead_model::{AgentEvent, Protocol};

use serde::{Deserialize, Serialize};

use crate::plug::{McpServer, NamedError};

pub use acp::Acp;
pub use claude::Claude;
pub use codex::Codex;
pub use drive::{Around, Driven, EventSink, OnePrompt, Prompts, drive};
pub use lines::{LineError, Lines, MAX_LINE};
pub(crate) use text::cut;

/// What a line, a cancel or an end leads to.
#[derive(Debug, Default, PartialEq)]
pub struct Step {
    pub events: Vec<AgentEvent>,
    /// Lines for the agent's standard input, without their line feeds.
    pub write: Vec<String>,
}

impl Step {
    fn event(event: AgentEvent) -> Self {
        Self {
            events: vec![event],
            write: vec![],
        }
    }

    fn line(line: String) -> Self {
        Self {
            events: vec![],
            write: vec![line],
        }
    }
}

/// An agent's output broke its protocol, or the agent itself refused.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error(transparent)]
    Line(#[from] LineError),
    /// A plug failed at a message.
    #[error(transparent)]
    Plug(#[from] NamedError),
    #[error("writing to the agent's standard input")]
    Write(#[source] std::io::Error),
    #[error("the agent refused {method}: {message} (code {code})")]
    Refused {
        method: &'static str,
        code: i64,
        message: String,
    },
    #[error("the agent's answer to {method} is not of its form")]
    Answer {
        method: &'static str,
        source: serde_json::Error,
    },
    #[error(
        "the agent speaks version {theirs} of the Agent Client Protocol, and Bulkhead speaks 1: use a \
         version of the agent that still speaks 1"
    )]
    Version { theirs: i64 },
}

/// One conversation with one agent.
pub trait AgentProtocol: Send {
    /// What is said before the agent says anything.
    fn start(&mut self) -> Step {
        Step::default()
    }

    fn line(&mut self, line: &str) -> Result<Step, ProtocolError>;

    /// The agent has been quiet for a moment: what was held back to be joined goes out.
    fn quiet(&mut self) -> Step {
        Step::default()
    }

    /// The polite way to ask the agent to stop, where the protocol has one.
    fn cancel(&mut self) -> Step {
        Step::default()
    }

    /// Whether the turn is over, or has not begun, and the agent would take another prompt.
    fn waits_for_prompt(&self) -> bool {
        false
    }

    /// Says the next prompt, where [`waits_for_prompt`](Self::waits_for_prompt) says that it can be said.
    fn prompt(&mut self, _text: &str) -> Step {
        Step::default()
    }

    /// By what the agent knows this conversation, where it has said so.
    fn conversation(&self) -> Option<Conversation> {
        None
    }

    /// Whether the agent took the earlier conversation up again.
    fn resumed(&self) -> bool {
        false
    }

    /// Whether the agent still reads its standard input. Where it does not, it gets an end of file at once
    /// (case 22).
    fn reads_stdin(&self) -> bool {
        false
    }
}

/// A conversation with an agent, as it can be taken up again (H15).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// The agent's own name for it.
    pub id: String,
    /// The mode that it was in, where its protocol has modes.
    pub mode: Option<String>,
    /// Whether the agent says that it can load it.
    pub loads: bool,
}

/// What a conversation begins with.
#[derive(Debug, Default)]
pub struct Opening<'a> {
    pub cwd: &'a str,
    /// None waits for the first prompt.
    pub prompt: Option<&'a str>,
    pub mcp: &'a [McpServer],
    pub resume: Option<Conversation>,
}

/// The conversation for a protocol; none for plain text, which is output and nothing else.
pub fn conversation(protocol: Protocol, opening: Opening<'_>) -> Option<Box<dyn AgentProtocol>> {
    match protocol {
        Protocol::Acp => {
            let mut acp = Acp::new(opening.cwd, opening.prompt.unwrap_or_default());
            if opening.prompt.is_none() {
                acp = acp.without_prompt();
            }
            if let Some(conversation) = opening.resume {
                acp = acp.resume(conversation);
            }
            Some(Box::new(acp.mcp(opening.mcp)))
        }
        Protocol::ClaudeStreamJson => Some(Box::new(Claude::default())),
        Protocol::CodexJson => Some(Box::new(Codex::default())),
        Protocol::Plain => None,
    }
}
