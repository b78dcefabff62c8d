//! Our side of the static helper's modes: files, and streams to and from ports and sockets, wherever the helper can be started.
//!
//! A [`Place`] starts the helper: a container's holder, a sandbox's PID 1. The rest is the same everywhere.

mod connect;
mod listen;

use std::{fmt, io, sync::Arc};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt as _};

pub(crate) use self::{connect::connect, listen::listen};
use crate::{
    Connect, Endpoint, HostError, Process, SftpProvider, SftpStream, Stdio, Stream, files::Provider,
};

/// Where the helper can be started.
#[async_trait]
pub(crate) trait Place: Send + Sync + fmt::Debug {
    /// Starts the helper with these arguments; its error output goes nowhere.
    async fn helper(&self, arguments: Vec<String>, stdio: Stdio) -> Result<Process, HostError>;

    /// Its name in errors.
    fn name(&self) -> String;
}

/// Input and output, nothing else.
const PIPED: Stdio = Stdio::Streams {
    stdin: Stream::Pipe,
    stdout: Stream::Pipe,
    stderr: Stream::Null,
};

/// The place's files. Nothing is started until the first operation.
pub(crate) fn files(place: Arc<dyn Place>) -> Arc<dyn Provider> {
    Arc::new(SftpProvider::new(FileServer(place)))
}

#[derive(Debug)]
struct FileServer(Arc<dyn Place>);

#[async_trait]
impl Connect for FileServer {
    async fn connect(&self) -> Result<SftpStream, HostError> {
        let mut process = self.0.helper(vec!["files".to_owned()], PIPED).await?;
        let (reader, writer) = (process.stdout.take(), process.stdin.take());
        let (Some(reader), Some(writer)) = (reader, writer) else {
            return Err(HostError::Gone {
                host: self.0.name(),
            });
        };
        Ok(SftpStream {
            reader,
            writer,
            guard: Box::new(process.control),
        })
    }

    fn can_watch(&self) -> bool {
        true
    }
}

/// How the helper is told a place to connect to or to listen at.
fn argument(endpoint: &Endpoint) -> io::Result<String> {
    match endpoint {
        Endpoint::Tcp(address) => Ok(format!("tcp:{address}")),
        Endpoint::Unix(path) => {
            let path = path.to_str().ok_or(io::ErrorKind::InvalidInput)?;
            Ok(format!("unix:{path}"))
        }
    }
}

/// What the helper says first: the port, or the kernel's error.
async fn status(from: &mut (impl AsyncRead + Unpin)) -> io::Result<u16> {
    let errno = from.read_i32().await?;
    let port = from.read_u16().await?;
    match errno {
        0 => Ok(port),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn failed(place: &dyn Place, endpoint: &Endpoint) -> impl FnOnce(io::Error) -> HostError {
    let (host, endpoint) = (place.name(), endpoint.to_string());
    move |source| HostError::Forward {
        host,
        endpoint,
        source: Arc::new(source),
    }
}
