//! Files and forwards of a place with a holder: further modes of the helper, as processes there.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::{
    Connect, Endpoint, HostError, Process, SftpProvider, SftpStream, Stdio, Stream,
    files::Provider, forward,
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

/// A stream to an endpoint of the place.
pub(crate) async fn connect(
    place: &dyn Place,
    _to: Endpoint,
) -> Result<forward::Stream, HostError> {
    Err(HostError::Unsupported {
        host: place.name(),
        what: "connect to its ports yet".to_owned(),
    })
}

/// A listening endpoint of the place.
pub(crate) async fn listen(
    place: &dyn Place,
    _at: Endpoint,
) -> Result<Box<dyn forward::Listener>, HostError> {
    Err(HostError::Unsupported {
        host: place.name(),
        what: "listen on its ports yet".to_owned(),
    })
}
