//! Files of a place with a holder: another mode of the helper, as a process there.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::{
    Connect, HostError, Process, SftpProvider, SftpStream, Stdio, Stream, files::Provider,
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
