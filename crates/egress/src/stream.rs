//! The byte stream of a checked connection.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// A connection to the outside. Closing the write side keeps the read side open.
#[derive(Debug)]
pub enum Link {
    Direct(TcpStream),
    /// Behind the operator's proxy; the buffer may hold what the other end said first.
    Proxied(BufReader<TcpStream>),
    Tls(Box<TlsStream<Link>>),
}

impl Link {
    /// The machine at the other end of the TCP connection: the target, or the operator's proxy.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Direct(stream) => stream.peer_addr(),
            Self::Proxied(stream) => stream.get_ref().peer_addr(),
            Self::Tls(stream) => stream.get_ref().0.peer_addr(),
        }
    }
}

/// Hands a method on to the stream inside.
macro_rules! inner {
    ($link:expr, $stream:ident => $call:expr) => {
        match $link.get_mut() {
            Link::Direct(inner) => {
                let $stream = Pin::new(inner);
                $call
            }
            Link::Proxied(inner) => {
                let $stream = Pin::new(inner);
                $call
            }
            Link::Tls(inner) => {
                let $stream = Pin::new(inner.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        inner!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_shutdown(cx))
    }
}
