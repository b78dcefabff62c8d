//! What the agent can reach on a host (H16), computed from the host's real configuration.

use serde::Serialize;

/// One host's walls. The innermost host's walls hold the agent; what an outer host adds shows in its own layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Layer {
    /// The kind: `local`, `sandbox`, `docker`, `ssh`.
    pub kind: &'static str,
    /// Which one, in words; nothing secret.
    pub host: String,
    pub files: String,
    pub network: String,
    pub credentials: String,
    pub processes: String,
    /// What the configuration has weakened, one sentence each: the engine's socket is mounted, say.
    pub weakened: Vec<String>,
    /// How processes are ended when the connection is lost (H14), where that is known by now.
    pub supervision: Option<String>,
}
