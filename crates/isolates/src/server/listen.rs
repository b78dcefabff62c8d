//! Where the service listens: a Unix socket that only its owner reaches, or TCP with both sides' certificates.

use std::{
    fs::{DirBuilder, Permissions},
    io,
    net::SocketAddr,
    os::unix::{
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::broker::Broker;

const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(10);
/// Invocations over one connection at once.
const STREAMS_MAX: u32 = 2_048;
/// What may come in unread: of one stream, and of one connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Where to listen.
#[derive(Debug)]
pub enum Listen {
    /// In a directory that only its owner can enter; it is made where there is none.
    Unix(PathBuf),
    Tcp {
        address: SocketAddr,
        tls: MutualTls,
    },
}

/// PEM: the service's certificate and key, and the authority whose clients it believes.
pub struct MutualTls {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    pub client_authority: Vec<u8>,
}

impl std::fmt::Debug for MutualTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MutualTls")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("making the directory {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error(
        "others can enter {}, in which the socket would be: chmod 700 it, or name a socket in another directory",
        .0.display()
    )]
    NotPrivate(PathBuf),
    #[error("another service listens at {}", .0.display())]
    InUse(PathBuf),
    #[error("listening at {at}")]
    Bind { at: String, source: io::Error },
    #[error("reading the certificates")]
    Tls(#[source] tonic::transport::Error),
    #[error("serving")]
    Serve(#[source] tonic::transport::Error),
}

/// Serves until `stop`, and then until no stream is open. `listening` is told where, once connections are taken.
pub async fn serve(
    broker: Arc<Broker>,
    listen: Listen,
    stop: CancellationToken,
    listening: impl FnOnce(&str),
) -> Result<(), ListenError> {
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_ANSWER))
        .tcp_nodelay(true)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let service = super::service(broker);
    let stop = stop.cancelled_owned();
    match listen {
        Listen::Unix(path) => {
            let socket = bind(&path)?;
            listening(&format!("unix:{}", path.display()));
            let incoming = UnixListenerStream::new(socket);
            let served = server
                .add_service(service)
                .serve_with_incoming_shutdown(incoming, stop)
                .await;
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(&path);
            served.map_err(ListenError::Serve)
        }
        Listen::Tcp { address, tls } => {
            let bound = |source| ListenError::Bind {
                at: address.to_string(),
                source,
            };
            let listener = TcpListener::bind(address).await.map_err(bound)?;
            let at = listener.local_addr().map_err(bound)?;
            let mut server = server.tls_config(config(tls)).map_err(ListenError::Tls)?;
            listening(&at.to_string());
            let incoming = TcpListenerStream::new(listener);
            let served = server
                .add_service(service)
                .serve_with_incoming_shutdown(incoming, stop);
            served.await.map_err(ListenError::Serve)
        }
    }
}

fn config(tls: MutualTls) -> ServerTlsConfig {
    ServerTlsConfig::new()
        .identity(Identity::from_pem(tls.certificate, tls.key))
        .client_ca_root(Certificate::from_pem(tls.client_authority))
        .client_auth_optional(false)
}

fn bind(path: &Path) -> Result<UnixListener, ListenError> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let made = |source| ListenError::Directory {
        path: directory.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(made)?;
    let mode = std::fs::metadata(directory).map_err(made)?.mode();
    if mode & 0o077 != 0 {
        return Err(ListenError::NotPrivate(directory.to_owned()));
    }
    let bound = |source| ListenError::Bind {
        at: path.display().to_string(),
        source,
    };
    if path.exists() {
        if UnixStream::connect(path).is_ok() {
            return Err(ListenError::InUse(path.to_owned()));
        }
        std::fs::remove_file(path).map_err(bound)?;
    }
    let listener = UnixListener::bind(path).map_err(bound)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(bound)?;
    Ok(listener)
}
