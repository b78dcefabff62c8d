//! A TCP port inside the sandbox that is a Unix socket outside, byte for byte.

use std::{path::PathBuf, sync::Arc};

use tokio::net::{TcpStream, UnixStream};
use tracing::debug;

use crate::{door::Shared, relay::relay};

/// Carries one connection. A socket that nobody listens on closes the connection, which the client sees.
pub(crate) async fn serve(inside: TcpStream, path: Arc<PathBuf>, shared: Arc<Shared>) {
    let _ = inside.set_nodelay(true);
    match UnixStream::connect(&*path).await {
        Ok(outside) => {
            if let Err(error) = relay(inside, outside, shared.limits.relay()).await {
                debug!(%error, "a forwarded connection ended");
            }
        }
        Err(error) => debug!(%error, path = %path.display(), "the forward's socket is not there"),
    }
}
