//! What a sandbox may reach. An empty list reaches nothing (case 50).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One host name pattern and port, as it was written and checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressRule {
    /// A lower-case ASCII host name, or `*.` and one: the star stands for one or more labels.
    pub host: String,
    pub port: u16,
}

/// Deny by default: only what a rule names is reachable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkPolicy {
    pub allow: Vec<EgressRule>,
}
