//! What agent and runner say to each other, as plugs see it.

use serde_json::Value;

use super::NamedError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    ToAgent,
    FromAgent,
}

impl Direction {
    pub const fn reverse(self) -> Self {
        match self {
            Self::ToAgent => Self::FromAgent,
            Self::FromAgent => Self::ToAgent,
        }
    }
}

/// One line of the agent's protocol, without its line feed: JSON for all protocols but plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub direction: Direction,
    pub text: String,
}

impl Message {
    pub fn to_agent(text: impl Into<String>) -> Self {
        Self {
            direction: Direction::ToAgent,
            text: text.into(),
        }
    }

    pub fn from_agent(text: impl Into<String>) -> Self {
        Self {
            direction: Direction::FromAgent,
            text: text.into(),
        }
    }

    /// The message as JSON, where it is an object.
    pub fn json(&self) -> Option<Value> {
        let value = serde_json::from_str::<Value>(&self.text).ok()?;
        value.is_object().then_some(value)
    }
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on as it is.
    Pass,
    /// Another line goes on in its place.
    Change(String),
    /// It goes nowhere.
    Drop,
    /// It goes nowhere, and these lines go back to whoever sent it.
    Answer(Vec<String>),
}

/// What lies between the runner and the agent.
pub trait Passage: Send {
    /// What a message becomes: nothing, itself, others; each goes on in its own direction.
    fn pass(
        &mut self,
        message: Message,
    ) -> impl Future<Output = Result<Vec<Message>, NamedError>> + Send;

    /// Whether anything looks at messages at all. Where nothing does, plain output need not be cut into lines.
    fn looks(&self) -> bool;
}

/// Nothing lies between.
#[derive(Debug, Clone, Copy, Default)]
pub struct Straight;

impl Passage for Straight {
    async fn pass(&mut self, message: Message) -> Result<Vec<Message>, NamedError> {
        Ok(vec![message])
    }

    fn looks(&self) -> bool {
        false
    }
}
