//! What a container is made of, as its user writes it.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// A container, described. Whatever is not said is the engine's or the image's own, except the network: none.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DockerConfig {
    pub image: String,
    /// The engine's socket on the host before this one.
    #[serde(default = "engine_socket")]
    pub socket: PathBuf,
    #[serde(default)]
    pub pull: Pull,
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Given to every process besides what the image gives.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// A name, an id, or `user:group`; none is the image's.
    #[serde(default)]
    pub user: Option<String>,
    /// Where processes start that name no directory.
    #[serde(default)]
    pub workdir: Option<String>,
    #[serde(default)]
    pub limits: ContainerLimits,
    #[serde(default)]
    pub network: Network,
    /// Another OCI runtime that the engine knows, such as `runsc`.
    #[serde(default)]
    pub runtime: Option<String>,
    #[serde(default)]
    pub root: Root,
    #[serde(default)]
    pub security: Security,
    /// A persistent host (H14): the container ends when it has heard nothing from the session for so long, also where the
    /// connection looks alive. None relies on the connection's end.
    #[serde(default)]
    pub lost_after_seconds: Option<u16>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// What to do where the engine does not have the image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pull {
    #[default]
    Never,
    IfMissing,
}

/// Something of elsewhere that shows in the container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", deny_unknown_fields)]
pub enum Mount {
    /// A file or directory of the engine's machine, which must be there.
    Bind {
        source: PathBuf,
        target: PathBuf,
        #[serde(default)]
        access: MountAccess,
    },
    /// A volume of the engine, by its name; it outlives the container.
    Volume {
        name: String,
        target: PathBuf,
        #[serde(default)]
        access: MountAccess,
    },
    /// Memory.
    Tmpfs {
        target: PathBuf,
        #[serde(rename = "sizeBytes")]
        size_bytes: u64,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountAccess {
    #[default]
    Read,
    Write,
}

/// What is not said has no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerLimits {
    /// Memory, swap included.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// A thousand is one core.
    #[serde(default)]
    pub cpu_millis: Option<u32>,
    /// Processes and threads; with `runsc` its own threads count too, so at least 512 there.
    #[serde(default)]
    pub processes: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    #[default]
    None,
    /// The engine's default network.
    Bridge,
    /// The machine's own network.
    Host,
    /// A network of the engine, by its name.
    Named(String),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Root {
    #[default]
    Writable,
    ReadOnly,
}

/// What holds the container's processes. Everything here that differs from the default weakens it, and the isolation
/// summary says so; but `no_new_privileges` and `drop_capabilities`, which strengthen it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Security {
    pub privileged: Privileged,
    pub no_new_privileges: NoNewPrivileges,
    pub add_capabilities: Vec<String>,
    pub drop_capabilities: Vec<String>,
    pub seccomp: Seccomp,
    pub system_paths: SystemPaths,
    pub pid: Namespace,
    pub ipc: Namespace,
    pub users: Namespace,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Privileged {
    #[default]
    No,
    Yes,
}

/// Whether programs such as `sudo` may gain rights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoNewPrivileges {
    #[default]
    No,
    Yes,
}

/// The filter of system calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seccomp {
    #[default]
    Default,
    Unconfined,
    /// The text of a profile, as the engine takes it.
    Profile(String),
}

/// Whether the engine hides the kernel's own files in `/proc` and `/sys`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemPaths {
    #[default]
    Masked,
    Shown,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Namespace {
    #[default]
    Own,
    Host,
}

impl DockerConfig {
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            socket: engine_socket(),
            pull: Pull::default(),
            mounts: Vec::new(),
            env: BTreeMap::new(),
            user: None,
            workdir: None,
            limits: ContainerLimits::default(),
            network: Network::default(),
            runtime: None,
            root: Root::default(),
            security: Security::default(),
            lost_after_seconds: None,
            labels: BTreeMap::new(),
        }
    }
}

/// Names of variables only: their values may be secrets.
impl fmt::Debug for DockerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DockerConfig")
            .field("image", &self.image)
            .field("socket", &self.socket)
            .field("mounts", &self.mounts)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("user", &self.user)
            .field("limits", &self.limits)
            .field("network", &self.network)
            .field("runtime", &self.runtime)
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

impl Mount {
    pub(super) fn target(&self) -> &Path {
        match self {
            Self::Bind { target, .. }
            | Self::Volume { target, .. }
            | Self::Tmpfs { target, .. } => target,
        }
    }
}

impl Network {
    /// As the engine's interface calls it.
    pub(super) fn mode(&self) -> &str {
        match self {
            Self::None => "none",
            Self::Bridge => "bridge",
            Self::Host => "host",
            Self::Named(name) => name,
        }
    }
}

fn engine_socket() -> PathBuf {
    "/var/run/docker.sock".into()
}
