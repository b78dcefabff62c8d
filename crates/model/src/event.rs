//! What a phase says while it runs (D13): one model, filled by every agent protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;

/// Where a piece of a phase's output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// The agent's or command's standard output, where no protocol reads it.
    Stdout,
    Stderr,
    /// Bulkhead's own words about the phase: cloning, pushing, limits.
    System,
}

/// The steps on the way from a queued phase to its agent's first event, for timing (`bench/`).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    SessionStarted,
    SandboxReady,
    WorkspaceReady,
    AgentStarted,
    AgentFirstEvent,
    AgentEnded,
    Pushed,
    SandboxGone,
}

/// What an agent used of its model, where it says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// US dollars, where the agent reports them.
    pub cost_usd: Option<f64>,
    pub turns: u32,
}

/// One event of an agent. Text is what the agent wrote: untrusted, masked before it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The agent is ready; it names itself and its model where it can.
    Started {
        agent: Option<String>,
        model: Option<String>,
        session: Option<String>,
    },
    Message {
        text: String,
    },
    Thought {
        text: String,
    },
    /// The agent began to use a tool; `id` ties it to its end.
    ToolStarted {
        id: String,
        title: String,
        input: Option<String>,
    },
    ToolEnded {
        id: String,
        ok: bool,
        output: Option<String>,
    },
    Plan {
        entries: Vec<String>,
    },
    /// The agent asked for permission, and what Bulkhead answered in its place (R7).
    Permission {
        title: String,
        answer: String,
    },
    Usage {
        total: Usage,
    },
    /// The turn is over by the agent's own word.
    Finished {
        ok: bool,
        text: Option<String>,
    },
    /// A line that the protocol could not place: kept, never guessed at.
    Other {
        line: String,
    },
}

/// One event of a phase, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PhaseEvent {
    Stage {
        stage: Stage,
        at_ms: i64,
    },
    Agent {
        event: AgentEvent,
    },
    /// The network door let something through or refused it.
    Egress {
        allowed: bool,
        host: String,
        port: u16,
        why: String,
    },
    /// The sandbox is gone.
    Ended {
        outcome: Outcome,
    },
}
