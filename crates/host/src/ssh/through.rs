//! The way to a machine that is reached from another host (H4). The `ssh` program runs here, where the user's keys and
//! configuration are, and its connection goes through a socket of ours, which is carried to the machine by the host before it:
//!
//! ```text
//! ssh ─ProxyCommand─▶ our helper ─▶ socket in the private directory ─▶ outer.connect(name:port) ─▶ sshd
//! ```
//!
//! So that host makes the connection and resolves the name; keys and known hosts never get there.

use std::{
    net::{IpAddr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixListener,
    task::JoinSet,
};

use super::{SshConfig, SshError, settings::Settings};
use crate::{Command, DuplexStream, Endpoint, Host, HostError};

/// The addresses of one name.
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// Carries the connection for as long as it lives.
#[derive(Debug)]
pub(super) struct Way {
    option: String,
    /// Why the host before it could not connect: `ssh` itself only sees a stream that ends.
    failure: Arc<Mutex<Option<HostError>>>,
    carrying: JoinSet<()>,
}

impl Way {
    /// Opens it where the configuration has one; nothing is connected yet.
    pub(super) fn open(config: &SshConfig, dir: &Path) -> Result<Option<Self>, SshError> {
        let Some(outer) = config.through.clone() else {
            return Ok(None);
        };
        let to = Target::read(config)?;
        let helper = write_helper(dir).map_err(SshError::Directory)?;
        let socket = dir.join("w");
        let listener = UnixListener::bind(&socket).map_err(SshError::Directory)?;
        let failure = Arc::default();
        let mut carrying = JoinSet::new();
        carrying.spawn(carry(listener, outer, to, Arc::clone(&failure)));
        Ok(Some(Self {
            option: format!(
                "ProxyCommand={} pipe {}",
                quoted(&helper),
                quoted(&PathBuf::from(format!("unix:{}", socket.display())))
            ),
            failure,
            carrying,
        }))
    }

    pub(super) fn option(&self) -> &str {
        &self.option
    }

    /// Why there was no connection, where that is known.
    pub(super) fn failure(&self) -> Option<HostError> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }

    pub(super) fn into_tasks(self) -> JoinSet<()> {
        self.carrying
    }
}

/// Where the user's configuration says that the machine is.
struct Target {
    name: String,
    port: u16,
}

impl Target {
    fn read(config: &SshConfig) -> Result<Self, SshError> {
        let settings = Settings::read(config);
        for keyword in ["proxyjump", "proxycommand"] {
            if settings.get(keyword).is_some_and(|value| value != "none") {
                return Err(SshError::OwnWay(config.host.clone()));
            }
        }
        let port = settings.get("port").and_then(|port| port.parse().ok());
        match (settings.get("hostname"), port) {
            (Some(name), Some(port)) => Ok(Self {
                name: name.to_owned(),
                port,
            }),
            _ => Err(SshError::Ssh(
                "its configuration for the host cannot be read (`ssh -G`)".to_owned(),
            )),
        }
    }

    async fn connect(&self, outer: &dyn Host) -> Result<DuplexStream, HostError> {
        let address = match self.name.parse() {
            Ok(address) => address,
            Err(_) => self.resolve(outer).await?,
        };
        let to = SocketAddr::new(address, self.port);
        outer.connect(Endpoint::Tcp(to)).await
    }

    /// Asks the host before it: the name may mean something there only.
    async fn resolve(&self, outer: &dyn Host) -> Result<IpAddr, HostError> {
        let command = Command::new(["getent", "ahosts", "--", &self.name]);
        let mut process = outer.spawn(command).await?;
        drop(process.stdin.take());
        let mut words = String::new();
        if let Some(stdout) = process.stdout.take() {
            let _ = stdout
                .take(ANSWER_BYTES_MAX)
                .read_to_string(&mut words)
                .await;
        }
        process.control.wait().await;
        let first = words.split_whitespace().next();
        first
            .and_then(|address| address.parse().ok())
            .ok_or_else(|| HostError::Unsupported {
                host: outer.describe(),
                what: format!(
                    "find the address of {} (`getent ahosts`); put the address into your ssh configuration as `HostName`",
                    self.name
                ),
            })
    }
}

fn write_helper(dir: &Path) -> std::io::Result<PathBuf> {
    let path = dir.join("helper");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&path)?;
    std::io::Write::write_all(&mut file, bulkhead_sandbox::helper_program())?;
    Ok(path)
}

/// For a shell, in an option where `%` begins a word of ssh's.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    format!("'{}'", text.replace('\'', r"'\''").replace('%', "%%"))
}

async fn carry(
    listener: UnixListener,
    outer: Arc<dyn Host>,
    to: Target,
    failure: Arc<Mutex<Option<HostError>>>,
) {
    let Ok((mut here, _)) = listener.accept().await else {
        return;
    };
    match to.connect(&*outer).await {
        Ok(mut there) => between(&mut here, &mut there).await,
        Err(error) => {
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            let _ = here.shutdown().await;
        }
    }
}

/// An error is the connection's end, of which ssh tells.
async fn between(here: &mut tokio::net::UnixStream, there: &mut DuplexStream) {
    let _ = tokio::io::copy_bidirectional(here, there).await;
}
