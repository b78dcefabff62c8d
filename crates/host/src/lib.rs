//! Hosts: the machines on which a session's commands and its agent run.
//!
//! A [`Host`] starts processes (H1). Describing one does nothing: the connection, and where the host makes one
//! the machine itself, comes into being at the first use, once, however many first uses there are at the same
//! time (H2). Tearing down does nothing either where nothing was connected (H3).
//!
//! A host has processes ([`Host::spawn`]), files ([`Host::files`]) and forwarding ([`Host::connect`],
//! [`Host::listen`]). A host that nests takes the host below it in its constructor and reaches its machine only
//! through that one (H4).

mod command;
mod docker;
mod error;
mod files;
mod forward;
mod held;
mod helper;
mod holder;
mod isolation;
mod lazy;
mod local;
mod process;
mod sandbox;
mod sftp;
mod ssh;
pub mod supervisor;
mod wrapped;

pub use command::{Command, Stdio, Stream, TerminalSize};
pub use docker::{
    ContainerLimits, DockerConfig, DockerHost, Mount, MountAccess, Namespace, Network,
    NoNewPrivileges, Privileged, Pull, Root, Seccomp, Security, SystemPaths,
};
pub use error::HostError;
pub use files::{
    Access, BlockingFile, BlockingFileSystem, Capabilities, Change, ChangeKind, Code, CopyOptions,
    Dir, Dirent, Entry, Existing, FileHandle, FileKind, FileSystem, Flags, Follow, FsError, Links,
    OpenFile, OpenFlags, Provider, READ_FILE_MAX_BYTES, ReadStream, ReadStreamOptions, Refusal,
    Replace, RmOptions, Stat, Sync as SyncWrites, UnknownFlags, Watcher, WriteOptions, WriteStream,
    WriteStreamOptions,
};
pub use forward::{Duplex, Endpoint, Listener, Stream as DuplexStream};
pub use isolation::Layer;
pub use lazy::Lazy;
pub use local::{LocalConfig, LocalHost, LocalProvider};
pub use process::{ExitStatus, Process, ProcessControl, Reader, Signal, Target, Writer};
pub use sandbox::{Listeners, SandboxHost};
pub use sftp::{Connect, SftpProvider, SftpStream};
pub use ssh::{SshConfig, SshError, SshHost};
pub use wrapped::{WrapConfig, WrapNetwork, WrappedSandboxHost};

use std::sync::Arc;

use async_trait::async_trait;

/// A machine, connected at its first use.
#[async_trait]
pub trait Host: Send + Sync + std::fmt::Debug {
    /// What it is, in words for people; says nothing that is secret and does nothing.
    fn describe(&self) -> String;

    /// Whether anything has been used yet, and so whether a teardown has anything to do.
    fn is_connected(&self) -> bool;

    /// Starts a process. Nothing is inherited: neither environment nor open files.
    async fn spawn(&self, command: Command) -> Result<Process, HostError>;

    /// The host's file system. Asking for it does nothing; its first operation connects.
    fn files(&self) -> Arc<dyn Provider>;

    /// Connects to a port or socket of the host (a forward from the runner to the host).
    async fn connect(&self, to: Endpoint) -> Result<DuplexStream, HostError>;

    /// Listens on the host (a forward from the host to the runner).
    async fn listen(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError>;

    /// What the agent can reach here, the layers of the hosts below it first (H16).
    fn isolation(&self) -> Vec<Layer>;

    /// Ends the connection, and the machine where the host made it. Does nothing where nothing was used, and
    /// nothing the second time.
    async fn teardown(&self) -> Result<(), HostError>;
}
