//! Files over SFTP version 3: a client of our own, over any stream.
//!
//! It is our own because the existing ones decode names as text, and a name on a POSIX machine is bytes: a file that is not
//! named in UTF-8 could be neither seen nor removed. It also says Node's exact error where the protocol only says "failure":
//! OpenSSH's server folds most of the kernel's errors into three codes, so after a failure [`cause`] looks for the reason. Our own
//! server (`bulkhead-init files`) announces `errno@bulkhead` and answers the kernel's number, the whole of `stat(2)`, exact
//! `access(2)` and changes as they happen (`watch`).
//!
//! ```text
//! SftpProvider ──first operation──▶ Connect ──▶ Session (pipelined) ──▶ internal-sftp, sftp-server, bulkhead-init files
//! ```

mod cause;
mod file;
mod provider;
mod session;
mod stat;
mod watch;
mod wire;

use std::{any::Any, fmt, path::Path, sync::Arc};

use async_trait::async_trait;
use rustix::io::Errno;
use tokio::sync::Mutex;

use self::session::{Lost, Session};
use crate::{
    Access, FsError, HostError,
    error::chain,
    process::{Reader, Writer},
};

/// Where the stream to a file server comes from.
#[async_trait]
pub trait Connect: Send + Sync + fmt::Debug {
    /// Starts a server and gives both directions of its stream. Called at the first operation, and again at the next one
    /// after a stream has ended.
    async fn connect(&self) -> Result<SftpStream, HostError>;

    /// Whether these rights are given, as the machine's own kernel says; asked for by servers that cannot say it.
    /// None where there is no way to know.
    async fn access(&self, path: &Path, access: Access) -> Option<Result<bool, HostError>> {
        let _ = (path, access);
        None
    }

    /// Whether the server will be ours, which can watch.
    fn can_watch(&self) -> bool {
        false
    }
}

/// The stream to a file server.
pub struct SftpStream {
    pub reader: Reader,
    pub writer: Writer,
    /// Dropped when the stream is no longer used.
    pub guard: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for SftpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SftpStream").finish_non_exhaustive()
    }
}

/// A host's files over SFTP. Nothing is connected until the first operation.
#[derive(Debug)]
pub struct SftpProvider {
    connect: Box<dyn Connect>,
    session: Mutex<Option<Arc<Session>>>,
}

impl SftpProvider {
    pub fn new(connect: impl Connect + 'static) -> Self {
        Self {
            connect: Box::new(connect),
            session: Mutex::const_new(None),
        }
    }

    /// The conversation, begun now where there is none. Concurrent first operations begin one.
    async fn session(&self, syscall: &'static str, path: &Path) -> Result<Arc<Session>, FsError> {
        let mut session = self.session.lock().await;
        if let Some(session) = &*session
            && session.is_alive()
        {
            return Ok(Arc::clone(session));
        }
        let opened = self
            .open()
            .await
            .map_err(|words| FsError::new(Errno::CONNREFUSED, syscall, path).detail(words))?;
        let opened = Arc::new(opened);
        *session = Some(Arc::clone(&opened));
        Ok(opened)
    }

    async fn open(&self) -> Result<Session, String> {
        let stream = self
            .connect
            .connect()
            .await
            .map_err(|error| chain(&error))?;
        let SftpStream {
            reader,
            writer,
            guard,
        } = stream;
        let session = Session::open(reader, writer, guard).await;
        session.map_err(|lost| chain(&lost))
    }
}

/// The error of an operation whose connection went away.
fn lost(lost: &Lost, syscall: &'static str, path: Option<&Path>) -> FsError {
    plain(Errno::CONNRESET, syscall, path).detail(chain(lost))
}

/// An error with or without a path: Node's errors of open files have none.
fn plain(errno: Errno, syscall: &'static str, path: Option<&Path>) -> FsError {
    FsError {
        path: path.map(Path::to_owned),
        ..FsError::new(errno, syscall, Path::new(""))
    }
}
