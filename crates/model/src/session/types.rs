//! What a session's file says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{limits::Limits, network::NetworkPolicy, workflow::AgentChoice};

/// One session: an agent (or a command), and the plugs around it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionFile {
    pub name: Option<String>,
    /// None only where the file was read for its hosts.
    pub work: Option<SessionWork>,
    pub prompt: Option<String>,
    /// Wall clock of the whole session; none is no limit.
    pub timeout_ms: Option<u64>,
    /// How long an agent that works may be silent; none is no limit.
    pub idle_ms: Option<u64>,
    pub cost_micro_usd: Option<u64>,
    pub turns: Option<u32>,
    /// In the order of the file, which counts (H4).
    pub plugs: Vec<PlugConfig>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SessionWork {
    Agent(AgentChoice),
    /// A line for the innermost host's shell.
    Command(String),
}

/// One entry of the list of plugs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "plug", content = "config", rename_all = "kebab-case")]
pub enum PlugConfig {
    Host(HostPlug),
    Workspace(WorkspaceConfig),
    Env(BTreeMap<String, String>),
    Files(Vec<FileSpec>),
    Setup(Vec<SetupStep>),
    Secrets(Vec<SecretConfig>),
    Ports(PortsConfig),
    Mcp(Vec<McpConfig>),
    Record(RecordConfig),
    Script(ScriptConfig),
}

/// A plug that changes the host of those after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "host", content = "config", rename_all = "kebab-case")]
pub enum HostPlug {
    Local(LocalConfig),
    Sandbox(SandboxConfig),
    Docker(DockerConfig),
    Ssh(SshConfig),
}

impl HostPlug {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Sandbox(_) => "sandbox",
            Self::Docker(_) => "docker",
            Self::Ssh(_) => "ssh",
        }
    }
}

/// The runner's own machine, with the runner's own rights (H10).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalConfig {
    /// Where processes start; none is a directory of the session's own, which goes with it.
    pub directory: Option<String>,
}

/// Limits on files and network for what runs on the host before it (H11).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxConfig {
    pub limits: Limits,
    pub network: NetworkPolicy,
    /// Directories that are shown inside at the same path, read-only.
    pub read_only: Vec<String>,
}

/// A container (H12).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DockerConfig {
    pub image: String,
    /// The engine's socket on the host before it; none is the usual one of `engine`.
    pub socket: Option<String>,
    pub engine: Engine,
    /// Another OCI runtime that the engine knows: `runsc`.
    pub runtime: Option<String>,
    pub user: Option<String>,
    pub workdir: Option<String>,
    /// `bridge`, `none`, `host`, or a network's name; none is the engine's usual one.
    pub network: Option<String>,
    pub mounts: Vec<Mount>,
    pub env: BTreeMap<String, String>,
    pub limits: ResourceLimits,
    pub privileged: bool,
    /// A sandbox will be built inside: what the engine forbids for that is allowed, and nothing more.
    pub sandbox_inside: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    #[default]
    Docker,
    Podman,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub source: String,
    pub target: String,
    pub read_only: bool,
}

/// What a container may use; none is the engine's own bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    pub cpu_milli: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub pids: Option<u32>,
}

/// Another machine, by the name that the user's own `ssh` knows (H13).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshConfig {
    pub host: String,
    /// The machine outlives the session, so the agent there gets a supervisor (H14).
    pub persistent: bool,
    /// Where processes start; none is the account's home.
    pub directory: Option<String>,
    /// Another client configuration than the user's own.
    pub config_file: Option<String>,
}

/// Where the agent's files come from, and where they go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceConfig {
    pub source: WorkspaceSource,
    /// Where they are on the host; none is the host's usual place.
    pub target: Option<String>,
    pub out: Option<WorkspaceOut>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceSource {
    /// An empty directory.
    Empty,
    /// A directory of the runner's machine, copied.
    Directory(String),
    /// A repository of the runner's machine, cloned.
    Git {
        repository: String,
        /// A branch, tag or commit; none is what the repository has checked out.
        revision: Option<String>,
    },
}

/// Where the result goes, on the runner's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceOut {
    Directory(String),
    /// A branch of the repository that was cloned.
    Branch(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// On the host; relative to the agent's working directory.
    pub path: String,
    pub content: FileContent,
    /// Permission bits.
    pub mode: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileContent {
    Text(String),
    /// A file of the runner's machine, relative to the session's file.
    From(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupStep {
    /// A line for the host's shell.
    pub run: String,
    pub timeout_ms: u64,
    /// Run at the session's end, whatever happened.
    pub teardown: Option<String>,
}

/// A secret for the agent, in a variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretConfig {
    /// The variable's name.
    pub name: String,
    pub source: SecretSource,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretSource {
    /// By its name in Bulkhead's own store.
    Store(String),
    /// A variable of whoever starts the session.
    Env(String),
    /// A file of the runner's machine.
    File(String),
}

impl std::fmt::Display for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(name) => write!(f, "the store's {name}"),
            Self::Env(name) => write!(f, "the variable {name}"),
            Self::File(path) => write!(f, "the file {path}"),
        }
    }
}

/// Forwards of ports and sockets between the runner and the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortsConfig {
    /// Listens on the runner, connects on the host.
    pub to_host: Vec<Forward>,
    /// Listens on the host, connects on the runner.
    pub to_runner: Vec<Forward>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// `ADDRESS:PORT`, or a socket's absolute path.
    pub listen: String,
    pub connect: String,
    /// A variable of the agent's that gets the place that is listened at.
    pub env: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpConfig {
    pub name: String,
    pub transport: McpTransport,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum McpTransport {
    /// Started by the agent, on the agent's host.
    Command {
        argv: Vec<String>,
        env: BTreeMap<String, String>,
    },
    Http {
        url: String,
        headers: BTreeMap<String, String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordConfig {
    /// The transcript's file, relative to the session's file; none is in the session's own directory.
    pub file: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScriptConfig {
    /// Relative to the session's file.
    pub file: String,
    pub name: Option<String>,
    /// Handed to the script as it is.
    pub config: Value,
}
