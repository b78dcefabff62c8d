//! The guarded connector for hyper's client: every connection of a pool passes the whole decision.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection as ClientConnection},
    rt::TokioIo,
};

use crate::{
    decision::EgressError,
    egress::Egress,
    grant::Grant,
    stream::Link,
    target::{Scheme, Target},
    tls::Tls,
};

/// Connects on behalf of one grant. Clients that pool connections must not share one over grants.
#[derive(Clone)]
pub struct Connector {
    egress: Egress,
    tls: Tls,
    grant: Grant,
}

impl Connector {
    pub const fn new(egress: Egress, tls: Tls, grant: Grant) -> Self {
        Self { egress, tls, grant }
    }

    /// Connects to a target and, where its scheme says so, speaks TLS.
    pub async fn connect(&self, target: &Target) -> Result<Link, EgressError> {
        let link = self.egress.connect(&self.grant, target).await?;
        if !target.scheme().is_tls() {
            return Ok(link);
        }
        let handshake = self.tls.connect(link, target.host());
        self.egress.handshake(target, handshake).await
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Connection;
    type Error = EgressError;
    type Future = BoxFuture<'static, Result<Connection, EgressError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), EgressError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let target =
                Target::from_url(&uri.to_string(), Scheme::WEB).map_err(EgressError::Refused)?;
            let link = this.connect(&target).await?;
            Ok(Connection(TokioIo::new(link)))
        })
    }
}

/// A [`Link`] in the traits of hyper.
#[derive(Debug)]
pub struct Connection(TokioIo<Link>);

impl ClientConnection for Connection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
