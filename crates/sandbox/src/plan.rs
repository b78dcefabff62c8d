//! What one sandbox is made of: a [`Plan`] lists all that it will see, and there is nothing else.

use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    path::PathBuf,
};

use bulkhead_model::{ids::SandboxId, limits::Limits};

/// The description of one sandbox. Describing does nothing; [`crate::Engine::create`] builds it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Unique: it names the sandbox's cgroups, and orphans are found by it.
    pub id: SandboxId,
    pub limits: Limits,
    pub workspace: Workspace,
    /// Sockets to make inside the sandbox's network namespace; see [`crate::Sandbox::take_listeners`].
    pub listeners: Vec<Listener>,
    /// More of the host, where the operator or the caller lists it.
    pub binds: Vec<Bind>,
}

impl Plan {
    /// A plan with nothing but the system directories and an empty workspace.
    pub const fn new(id: SandboxId, limits: Limits, workspace: Workspace) -> Self {
        Self {
            id,
            limits,
            workspace,
            listeners: Vec::new(),
            binds: Vec::new(),
        }
    }
}

/// What [`crate::WORKSPACE_DIR`] is. Always empty at the start, except for a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workspace {
    /// A file system of its own, of the size `limits.disk_bytes`, shared with the home directory. The default for
    /// phases. Needs root; without it the engine uses [`Workspace::Tmpfs`] and says so.
    Image,
    /// In memory: counts against `limits.memory_bytes` too. For small work.
    Tmpfs,
    /// A directory of the host, writable; what is written there belongs to the directory's owner. The home directory
    /// is apart (an image). The size of a shared directory cannot be fixed beforehand; it is watched instead, and a sandbox
    /// that adds more than `limits.disk_bytes` is ended ([`crate::EndReason::DiskFull`]).
    Directory(PathBuf),
}

/// Whose a bind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The operator listed it: so much more of the machine is seen inside.
    Listed,
    /// Bulkhead's own program, whose text anybody may read.
    OwnProgram,
}

/// A file or directory of the host, seen inside, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    pub purpose: Purpose,
    pub source: PathBuf,
    /// The path inside. Absolute, without `..`, and not below `/proc`, `/dev`, `/etc`, `/tmp` or the workspace.
    pub target: PathBuf,
}

impl Bind {
    /// The same path inside as outside, as toolchains need it.
    pub fn same_path(path: impl Into<PathBuf>) -> Self {
        let source = path.into();
        Self {
            purpose: Purpose::Listed,
            target: source.clone(),
            source,
        }
    }

    /// Bulkhead's own program, at a path where those inside find it.
    pub fn own_program(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self {
            purpose: Purpose::OwnProgram,
            source: source.into(),
            target: target.into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Udp,
}

/// A socket that is bound inside (also to ports below 1024) and served from outside (D5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    pub transport: Transport,
    /// A loopback address: the sandbox has no other interface.
    pub address: SocketAddr,
}

impl Listener {
    pub const fn tcp(address: SocketAddr) -> Self {
        Self {
            transport: Transport::Tcp,
            address,
        }
    }

    pub const fn udp(address: SocketAddr) -> Self {
        Self {
            transport: Transport::Udp,
            address,
        }
    }
}

/// A socket of the sandbox's network namespace, in the hands of the parent; non-blocking, ready for
/// `tokio::net::TcpListener::from_std` and `tokio::net::UdpSocket::from_std`.
#[derive(Debug)]
pub enum BoundSocket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}
