//! Ports and sockets of the machine, over the same connection.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream, unix::pipe},
};

use super::{
    SshError,
    master::Master,
    mux::{Direction, Forward, Mux, Place},
};
use crate::{DuplexStream, Endpoint, HostError, Listener};

/// How long a refusal by the machine may take to arrive; what comes later shows as a stream that ends.
const REFUSAL_LIMIT: Duration = Duration::from_millis(300);

fn place(endpoint: &Endpoint) -> Result<Place, SshError> {
    Ok(match endpoint {
        Endpoint::Tcp(address) => Place::Tcp(address.ip().to_string(), address.port()),
        Endpoint::Unix(path) => {
            let path = path.to_str().ok_or(SshError::SocketName)?;
            Place::Socket(path.to_owned())
        }
    })
}

/// A stream to a place on the machine.
pub(super) async fn connect(master: &Master, to: &Endpoint) -> Result<DuplexStream, SshError> {
    match place(to)? {
        to @ Place::Tcp(..) => connect_directly(master, &to).await,
        to @ Place::Socket(_) => connect_through_socket(master, to).await,
    }
}

/// `ssh` connects streams of ours to ports only; a socket is reached by a forward of a socket here, which is for this one stream.
async fn connect_through_socket(master: &Master, to: Place) -> Result<DuplexStream, SshError> {
    let path = master.new_socket();
    let listen = path.to_str().ok_or(SshError::SocketName)?.to_owned();
    let forward = Forward {
        direction: Direction::ToMachine,
        listen: Place::Socket(listen),
        to,
    };
    let mut mux = master.mux().await?;
    mux.forward(&forward).await?;
    let mut stream = UnixStream::connect(&path)
        .await
        .map_err(SshError::Streams)?;
    // The master has accepted only when the machine answers, or closes it at once where the machine refuses.
    let refused = tokio::time::timeout(REFUSAL_LIMIT, refused(&mut stream)).await;
    mux.cancel_forward(&forward).await?;
    let _ = std::fs::remove_file(&path);
    match refused {
        Ok(()) => Err(SshError::NoSuchSocket),
        Err(_) => Ok(Box::new(stream)),
    }
}

/// Ends where the stream ends before it has brought anything.
async fn refused(stream: &mut UnixStream) {
    loop {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let _ = stream.readable().await;
        let peeked = rustix::net::recv(&*stream, &mut byte, rustix::net::RecvFlags::PEEK);
        match peeked {
            Ok((_, 0)) => return,
            Err(rustix::io::Errno::AGAIN) => {}
            _ => std::future::pending().await,
        }
    }
}

/// One pipe for each direction, so that each ends by itself.
async fn connect_directly(master: &Master, to: &Place) -> Result<DuplexStream, SshError> {
    let io = SshError::Streams;
    let (writer, theirs_in) = pipe::pipe().map_err(io)?;
    let (theirs_out, reader) = pipe::pipe().map_err(io)?;
    let theirs_in = theirs_in.into_blocking_fd().map_err(io)?;
    let theirs_out = theirs_out.into_blocking_fd().map_err(io)?;
    let mut mux = master.mux().await?;
    let streams = [&theirs_in, &theirs_out].map(std::os::fd::AsFd::as_fd);
    mux.stream(to, streams).await?;
    Ok(Box::new(Forwarded {
        reader,
        writer: Some(writer),
        _mux: mux,
    }))
}

/// The stream, and the master's conversation that keeps it open.
struct Forwarded {
    reader: pipe::Receiver,
    /// Closed by a shutdown, which is the other side's end of file.
    writer: Option<pipe::Sender>,
    _mux: Mux,
}

impl AsyncRead for Forwarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Forwarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match &mut self.writer {
            Some(writer) => Pin::new(writer).poll_write(cx, bytes),
            None => Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.writer = None;
        Poll::Ready(Ok(()))
    }
}

/// Listens on the machine; what connects there arrives at a socket of ours.
pub(super) async fn listen(
    host: &str,
    master: &Arc<Master>,
    at: &Endpoint,
) -> Result<Box<dyn Listener>, SshError> {
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
        self.master.tasks.spawn(async move {
            if let Ok(mut mux) = master.mux().await {
                let _ = mux.cancel_forward(&forward).await;
            }
            if let Some(line) = remove {
                let _ = master.perform(&line).await;
            }
        });
    }
}
