//! A machine over SSH (H13).
//!
//! The connection is made by the user's own `ssh` program with the user's own configuration (`~/.ssh/config`, agent, jump hosts,
//! known hosts); an unknown or changed host key is an error. One connection serves everything: processes, files, forwards in both
//! directions. It comes at the first use; the machine outlives the session.
//!
//! ```text
//! SshHost ──first use──▶ master (ssh -M) ──mux──▶ sessions: the account's login shell ─exec▶ /bin/sh ─exec▶ the program
//!                           │                       ├▶ subsystem sftp: files
//!                           └ its own shell:        └▶ streams to ports and sockets; listening ports and sockets
//!                             signals, rights
//! ```

mod files;
mod forward;
mod master;
mod mux;
mod process;
mod script;
mod settings;
mod slots;
mod terminal;
mod through;

use std::{
    collections::BTreeMap,
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;

use self::{
    files::Subsystem, master::Master, mux::MuxError, script::ScriptError, settings::Settings,
};
use crate::{
    Command, DuplexStream, Endpoint, Host, HostError, Layer, Lazy, Listener, Process, Provider,
    SftpProvider,
};

/// How a machine is reached.
#[derive(Clone)]
pub struct SshConfig {
    /// What `ssh` would be given: an alias of the user's configuration, a name, or `user@name`.
    pub host: String,
    /// Instead of the user's own configuration (`ssh -F`).
    pub config_file: Option<PathBuf>,
    pub user: Option<String>,
    pub port: Option<u16>,
    /// The environment of the `ssh` program, which looks for the agent in it, and may send of it what the configuration says. It
    /// must hold no credentials of the runner (H7). `HOME`, `PATH` and `SSH_AUTH_SOCK` are what it needs.
    pub env: BTreeMap<String, String>,
    /// Where the private directory of the control socket is made. Sockets have short paths only, so this one must be short.
    pub run_dir: PathBuf,
    /// The `ssh` program.
    pub program: PathBuf,
    /// The host from which the machine is reached, where that is not this machine.
    pub through: Option<Arc<dyn Host>>,
    /// How long connecting may take, jump hosts included.
    pub connect_limit: Duration,
}

impl SshConfig {
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            config_file: None,
            user: None,
            port: None,
            env: BTreeMap::new(),
            run_dir: "/tmp".into(),
            program: "ssh".into(),
            through: None,
            connect_limit: Duration::from_secs(60),
        }
    }

    #[must_use]
    pub fn config_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.config_file = Some(file.into());
        self
    }

    #[must_use]
    pub fn through(mut self, outer: Arc<dyn Host>) -> Self {
        self.through = Some(outer);
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    fn arguments(&self) -> Vec<std::ffi::OsString> {
        let mut arguments = Vec::new();
        if let Some(file) = &self.config_file {
            arguments.extend(["-F".into(), file.clone().into_os_string()]);
        }
        if let Some(user) = &self.user {
            arguments.extend(["-l".into(), user.into()]);
        }
        if let Some(port) = self.port {
            arguments.extend(["-p".into(), port.to_string().into()]);
        }
        arguments
    }

    /// A name that `ssh` would take for an option, or a shell of the configuration for more than a name.
    fn check(&self) -> Result<(), SshError> {
        let bad = |character: char| {
            character.is_whitespace()
                || character.is_control()
                || "'\"`$\\;&|<>(){}!".contains(character)
        };
        let names = [Some(&self.host), self.user.as_ref()];
        let is_wrong =
            |name: &String| name.is_empty() || name.starts_with('-') || name.contains(bad);
        match names.into_iter().flatten().find(|name| is_wrong(name)) {
            Some(name) => Err(SshError::Name(name.clone())),
            None => Ok(()),
        }
    }
}

/// Names of variables only: their values may be secrets.
impl fmt::Debug for SshConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshConfig")
            .field("host", &self.host)
            .field("config_file", &self.config_file)
            .field("user", &self.user)
            .field("port", &self.port)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// What can go wrong with a machine over SSH.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    #[error("{0:?} is no name of a host or user")]
    Name(String),
    #[error("running {program:?}; it comes with the package openssh-client")]
    Program {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the ssh configuration of {0} says by which way it is reached (ProxyJump or ProxyCommand), which would start on this \
         machine and not on the host before it: take that out, or put the ssh host first"
    )]
    OwnWay(String),
    #[error("reaching it from the host before it")]
    Before(#[source] HostError),
    #[error("using a directory")]
    Directory(#[source] io::Error),
    #[error(
        "the host key of {host} is not known; connect once with `ssh {host}` and compare the key that it shows, or add \
         the key to your known_hosts ({words})"
    )]
    UnknownKey { host: String, words: String },
    #[error(
        "the host key of {host} has changed, so this may be another machine; if the change is expected, remove the old \
         key with `ssh-keygen -R` and compare the new one ({words})"
    )]
    ChangedKey { host: String, words: String },
    #[error(
        "{host} did not let us in; keys must be usable without a question here: load them into your ssh agent ({words})"
    )]
    Denied { host: String, words: String },
    #[error("ssh gave up: {0}")]
    Ssh(String),
    #[error("the connection did not come within {0:?}")]
    TimedOut(Duration),
    #[error("the account's login shell did not run /bin/sh; it said: {0:?}")]
    NoShell(String),
    #[error(
        "the server lets open no session besides the connection's own: {0}; raise MaxSessions in its sshd_config to at \
         least 2"
    )]
    NoSessions(String),
    #[error("it may not be executed")]
    NotExecutable,
    #[error("making streams")]
    Streams(#[source] io::Error),
    #[error("the process has no terminal")]
    NoTerminal,
    #[error("nobody listens there, or the account may not connect to it")]
    NobodyThere,
    #[error("a socket's path must be text")]
    SocketName,
    #[error("the connection has ended")]
    Ended,
    #[error(transparent)]
    Command(#[from] Unspeakable),
    #[error(transparent)]
    Control(#[from] Conversation),
}

/// A command that cannot be said to a POSIX shell.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unspeakable(ScriptError);

/// A conversation with the connection that failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Conversation(MuxError);

impl From<ScriptError> for SshError {
    fn from(error: ScriptError) -> Self {
        Self::Command(Unspeakable(error))
    }
}

impl From<MuxError> for SshError {
    fn from(error: MuxError) -> Self {
        match error {
            MuxError::Closed => Self::Ended,
            other => Self::Control(Conversation(other)),
        }
    }
}

/// A machine over SSH.
#[derive(Debug)]
pub struct SshHost(Arc<Shared>);

/// What the host and its file systems have in common.
#[derive(Debug)]
struct Shared {
    config: SshConfig,
    master: Lazy<Arc<Master>, HostError>,
    has_ended: AtomicBool,
    settings: OnceLock<Settings>,
}

impl Shared {
    fn name(&self) -> String {
        self.config.host.clone()
    }

    async fn master(&self) -> Result<Arc<Master>, HostError> {
        let gone = || HostError::Gone { host: self.name() };
        if self.has_ended.load(Ordering::SeqCst) {
            return Err(gone());
        }
        let master = Arc::clone(self.master.get(|| self.connect()).await?);
        // A teardown may have come in the middle.
        if self.has_ended.load(Ordering::SeqCst) {
            master.end().await;
            return Err(gone());
        }
        Ok(master)
    }

    async fn connect(&self) -> Result<Arc<Master>, HostError> {
        let connected = async {
            self.config.check()?;
            Master::start(&self.config).await
        };
        connected.await.map_err(|source| HostError::Connect {
            host: self.name(),
            source: Arc::new(source),
        })
    }

    fn settings(&self) -> &Settings {
        self.settings.get_or_init(|| match self.config.check() {
            Ok(()) => Settings::read(&self.config),
            Err(_) => Settings::default(),
        })
    }
}

impl SshHost {
    /// Describes it; nothing is connected yet.
    pub fn new(config: SshConfig) -> Self {
        Self(Arc::new(Shared {
            config,
            master: Lazy::new(),
            has_ended: AtomicBool::new(false),
            settings: OnceLock::new(),
        }))
    }

    fn forward_error(&self, endpoint: &Endpoint) -> impl FnOnce(SshError) -> HostError {
        let (host, endpoint) = (self.0.name(), endpoint.to_string());
        move |source| HostError::Forward {
            host,
            endpoint,
            source: Arc::new(source),
        }
    }
}

#[async_trait]
impl Host for SshHost {
    fn describe(&self) -> String {
        format!("ssh {}", self.0.config.host)
    }

    fn is_connected(&self) -> bool {
        self.0.master.made().is_some()
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        let master = self.0.master().await?;
        process::spawn(&self.0.config.host, &master, command).await
    }

    /// Each one is a conversation of its own over the same connection.
    fn files(&self) -> Arc<dyn Provider> {
        Arc::new(SftpProvider::new(Subsystem(Arc::clone(&self.0))))
    }

    async fn connect(&self, to: Endpoint) -> Result<DuplexStream, HostError> {
        let master = self.0.master().await?;
        let stream = forward::connect(&master, &to).await;
        stream.map_err(self.forward_error(&to))
    }

    async fn listen(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        let master = self.0.master().await?;
        let listener = forward::listen(&self.0.config.host, &master, &at).await;
        listener.map_err(self.forward_error(&at))
    }

    fn isolation(&self) -> Vec<Layer> {
        let settings = self.0.settings();
        let target = settings.target().unwrap_or_else(|| self.0.name());
        let outer = self.0.config.through.as_ref();
        let mut layers = outer.map_or_else(Vec::new, |outer| outer.isolation());
        layers.push(Layer {
            kind: "ssh",
            host: format!("{} ({target})", self.0.config.host),
            files: "every file of that machine that the account may read or write".to_owned(),
            network: "everything that the machine can reach".to_owned(),
            credentials: "whatever the account has on that machine; none of the runner's"
                .to_owned(),
            processes: "every process of the account on that machine; no other machine's"
                .to_owned(),
            weakened: settings.weakened(),
            supervision: None,
        });
        layers
    }

    async fn teardown(&self) -> Result<(), HostError> {
        if !self.0.has_ended.swap(true, Ordering::SeqCst)
            && let Some(master) = self.0.master.made()
        {
            master.end().await;
        }
        Ok(())
    }
}
