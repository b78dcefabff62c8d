//! The isolation summary: what the agent can reach, boundary by boundary, and what it was given (H16).
//!
//! It is computed from the hosts' real configuration and from what the plugs did, never from a name. The innermost
//! host's layer holds the agent; the layers before it hold the hosts.

use std::fmt;

use bulkhead_host::{Host, Layer};
use serde::{Deserialize, Serialize};

use crate::plug::Grant;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IsolationSummary {
    /// The outermost host first.
    pub layers: Vec<LayerSummary>,
    pub given: Given,
}

/// What the agent has from the plugs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    /// Names of the agent's variables, never values.
    pub env: Vec<String>,
    pub grants: Vec<Grant>,
}

/// One host's walls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayerSummary {
    pub kind: String,
    pub host: String,
    pub files: String,
    pub network: String,
    pub credentials: String,
    pub processes: String,
    pub weakened: Vec<String>,
    pub supervision: Option<String>,
}

impl From<Layer> for LayerSummary {
    fn from(layer: Layer) -> Self {
        Self {
            kind: layer.kind.to_owned(),
            host: layer.host,
            files: layer.files,
            network: layer.network,
            credentials: layer.credentials,
            processes: layer.processes,
            weakened: layer.weakened,
            supervision: layer.supervision,
        }
    }
}

impl IsolationSummary {
    /// The walls of a host, and nothing given yet.
    pub fn of(host: &dyn Host) -> Self {
        let layers = host.isolation().into_iter();
        Self {
            layers: layers.map(LayerSummary::from).collect(),
            given: Given::default(),
        }
    }

    /// Whether nothing stands between the agent and the runner's own rights.
    pub fn is_open(&self) -> bool {
        self.layers.iter().all(|layer| layer.kind == "local")
    }
}

impl fmt::Display for IsolationSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "What the agent can reach:")?;
        for layer in &self.layers {
            write!(f, "{layer}")?;
        }
        let given = &self.given;
        if !given.env.is_empty() {
            writeln!(f, "  variables: {}", given.env.join(", "))?;
        }
        for grant in &given.grants {
            writeln!(f, "  given: {grant}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LayerSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {} ({})", self.kind, self.host)?;
        let rows = [
            ("files", &self.files),
            ("network", &self.network),
            ("credentials", &self.credentials),
            ("processes", &self.processes),
        ];
        for (what, words) in rows {
            writeln!(f, "    {what}: {words}")?;
        }
        for words in &self.weakened {
            writeln!(f, "    WEAKENED: {words}")?;
        }
        match &self.supervision {
            Some(words) => writeln!(f, "    at the end: {words}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret { name, source } => write!(f, "the secret {name}, from {source}"),
            Self::Forward { from, to } => write!(f, "a forward from {from} to {to}"),
            Self::Mcp { name, at } => write!(f, "the MCP server {name} at {at}"),
            Self::Other { words } => f.write_str(words),
        }
    }
}
