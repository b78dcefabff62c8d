//! Ports and sockets of this machine.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::NAME;
use crate::{DuplexStream, Endpoint, HostError, Listener};

pub(super) async fn connect(cwd: &Path, to: Endpoint) -> Result<DuplexStream, HostError> {
    let stream: io::Result<DuplexStream> = match &to {
        Endpoint::Tcp(address) => TcpStream::connect(address).await.map(boxed),
        Endpoint::Unix(path) => UnixStream::connect(cwd.join(path)).await.map(boxed),
    };
    stream.map_err(failed(&to))
}

pub(super) async fn listen(cwd: &Path, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
    match &at {
        Endpoint::Tcp(address) => {
            let socket = TcpListener::bind(address).await.map_err(failed(&at))?;
            let bound = socket.local_addr().map_err(failed(&at))?;
            Ok(Box::new(Tcp {
                socket,
                endpoint: Endpoint::Tcp(bound),
            }))
        }
        Endpoint::Unix(path) => {
            let place = cwd.join(path);
            let socket = UnixListener::bind(&place).map_err(failed(&at))?;
            Ok(Box::new(Unix {
                socket,
                place,
                endpoint: at,
            }))
        }
    }
}

struct Tcp {
    socket: TcpListener,
    endpoint: Endpoint,
}

#[async_trait]
impl Listener for Tcp {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    async fn accept(&mut self) -> Result<DuplexStream, HostError> {
        let accepted = self.socket.accept().await;
        let stream = accepted.map(|(stream, _)| boxed(stream));
        stream.map_err(failed(&self.endpoint))
    }
}

struct Unix {
    socket: UnixListener,
    place: PathBuf,
    endpoint: Endpoint,
}

#[async_trait]
impl Listener for Unix {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    async fn accept(&mut self) -> Result<DuplexStream, HostError> {
        let accepted = self.socket.accept().await;
        let stream = accepted.map(|(stream, _)| boxed(stream));
        stream.map_err(failed(&self.endpoint))
    }
}

/// Nobody can listen at the path again while the socket lies there.
impl Drop for Unix {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.place);
    }
}

fn boxed(stream: impl crate::Duplex + 'static) -> DuplexStream {
    Box::new(stream)
}

fn failed(endpoint: &Endpoint) -> impl FnOnce(io::Error) -> HostError {
    let endpoint = endpoint.to_string();
    move |source| HostError::Forward {
        host: NAME.to_owned(),
        endpoint,
        source: Arc::new(source),
    }
}
