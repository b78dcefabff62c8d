//! Ports and sockets of a host, in both directions (H1).

use std::{fmt, net::SocketAddr, path::PathBuf};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::HostError;

/// A place to connect to or to listen at, as the host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// `127.0.0.1:80` or a path.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Bytes in both directions; each direction ends by itself.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub type Stream = Box<dyn Duplex>;

/// A listening place on a host. Dropping it ends the listening, not the streams that it gave.
#[async_trait]
pub trait Listener: Send {
    /// Where it listens: the port that was chosen, where 0 was asked for.
    fn endpoint(&self) -> Endpoint;

    async fn accept(&mut self) -> Result<Stream, HostError>;
}
