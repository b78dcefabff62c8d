//! Ready definitions of the well-known agents, and how a name and its overrides become an
//! [`AgentSpec`](bulkhead_model::AgentSpec).
//!
//! A definition is data ([`table`]): argv with prompts off (R7), protocol, environment, files for the
//! agent's home, and which model upstream it speaks to through the phase gateway. The agent's key variable
//! gets a placeholder, never a key.

mod resolve;
mod table;
mod turns;

pub use resolve::{AgentError, Overrides, ResolvedAgent, resolve};
pub use table::{Definition, Model, READY};
pub(crate) use turns::{continued, for_session};

/// The phase gateway's address inside every sandbox.
pub const GATEWAY: &str = "http://127.0.0.1:7080";

/// Where the sandbox shows the `bulkhead` program itself, for the scripted agent.
pub const BULKHEAD_INSIDE: &str = "/run/bulkhead/bin/bulkhead";
