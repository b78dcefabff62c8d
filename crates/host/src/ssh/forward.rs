//! Ports and sockets of the machine, over the same connection.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use rustix::net::RecvFlags;
use tokio::{
    io::Interest,
    net::{UnixListener, UnixStream},
    time::timeout,
};

use super::{
    SshError,
    master::Master,
    mux::{Direction, Forward, Place},
};
use crate::{DuplexStream, Endpoint, HostError, Listener};

/// How long the master may take to close a stream that the machine has refused.
const REFUSAL_GRACE: Duration = Duration::from_millis(5);

fn place(endpoint: &Endpoint) -> Result<Place, SshError> {
    Ok(match endpoint {
        Endpoint::Tcp(address) => Place::Tcp(address.ip().to_string(), address.port()),
        Endpoint::Unix(path) => {
            let path = path.to_str().ok_or(SshError::SocketName)?;
            Place::Socket(path.to_owned())
        }
    })
}

/// A stream to a place on the machine, by a forward of a socket here that is for this one stream.
///
/// `ssh` could also connect two streams of ours directly, but then the end of one direction ends the other one too.
pub(super) async fn connect(master: &Master, to: &Endpoint) -> Result<DuplexStream, SshError> {
    let path = master.new_socket();
    let listen = path.to_str().ok_or(SshError::SocketName)?.to_owned();
    let forward = Forward {
        direction: Direction::ToMachine,
        listen: Place::Socket(listen),
        to: place(to)?,
    };
    let mut mux = master.mux().await?;
    mux.forward(&forward).await?;
    let mut stream = UnixStream::connect(&path)
        .await
        .map_err(SshError::Streams)?;
    // The master accepts at once, and closes the stream when the machine refuses. A line of the connection's shell comes back
    // after that; a refusal by a third machine may come later, and shows as a stream that ends.
    master.perform(":").await?;
    let refused = timeout(REFUSAL_GRACE, refused(&mut stream)).await;
    mux.cancel_forward(&forward).await?;
    let _ = std::fs::remove_file(&path);
    match refused {
        Ok(()) => Err(SshError::NobodyThere),
        Err(_) => Ok(Box::new(stream)),
    }
}

/// Ends where the stream ends before it has brought anything.
async fn refused(stream: &mut UnixStream) {
    let peek = |stream: &UnixStream| {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let peeked = rustix::net::recv(stream, &mut byte, RecvFlags::PEEK);
        peeked.map(|(_, count)| count).map_err(io::Error::from)
    };
    let peeked = stream.async_io(Interest::READABLE, || peek(stream)).await;
    if !matches!(peeked, Ok(0) | Err(_)) {
        std::future::pending::<()>().await;
    }
}

/// Listens on the machine; what connects there arrives at a socket of ours.
pub(super) async fn listen(
    host: &str,
    master: &Arc<Master>,
    at: &Endpoint,
) -> Result<Box<dyn Listener>, SshError> {
    let mut leaving = master.leaving.subscribe();
    // An error means that the connection is gone, which the next step says.
    let _ = leaving.wait_for(|leaving| *leaving == 0).await;
    let path = master.new_socket();
    let socket = UnixListener::bind(&path).map_err(SshError::Streams)?;
    let to = path.to_str().ok_or(SshError::SocketName)?.to_owned();
    let forward = Forward {
        direction: Direction::FromMachine,
        listen: place(at)?,
        to: Place::Socket(to),
    };
    let chosen = master.mux().await?.forward(&forward).await?;
    let mut endpoint = at.clone();
    if let (Endpoint::Tcp(address), Some(port)) = (&mut endpoint, chosen)
        && let Ok(port) = u16::try_from(port)
    {
        address.set_port(port);
    }
    Ok(Box::new(Remote {
        host: host.to_owned(),
        master: Arc::clone(master),
        socket,
        path,
        forward,
        endpoint,
    }))
}

struct Remote {
    host: String,
    master: Arc<Master>,
    socket: UnixListener,
    path: PathBuf,
    forward: Forward,
    endpoint: Endpoint,
}

#[async_trait]
impl Listener for Remote {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    async fn accept(&mut self) -> Result<DuplexStream, HostError> {
        let accepted = self.socket.accept().await;
        let (stream, _) = accepted.map_err(|source| HostError::Forward {
            host: self.host.clone(),
            endpoint: self.endpoint.to_string(),
            source: Arc::new(source),
        })?;
        Ok(Box::new(stream))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let (master, forward) = (Arc::clone(&self.master), self.forward.clone());
        // The socket's file on the machine is sshd's, which leaves it lying there.
        let remove = match &forward.listen {
            Place::Socket(path) => super::script::remove(path).ok(),
            Place::Tcp(..) => None,
        };
        master.leaving.send_modify(|leaving| *leaving += 1);
        self.master.tasks.spawn(async move {
            if let Ok(mut mux) = master.mux().await {
                let _ = mux.cancel_forward(&forward).await;
            }
            if let Some(line) = remove {
                let _ = master.perform(&line).await;
            }
            master.leaving.send_modify(|leaving| *leaving -= 1);
        });
    }
}
