//! The machine's files, over the `sftp` subsystem of the same connection.

use std::{os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

use async_trait::async_trait;
use tokio::net::unix::pipe;

use super::{Shared, SshError, mux::Runs, process, script};
use crate::{Access, Connect, HostError, SftpStream};

#[derive(Debug)]
pub(super) struct Subsystem(pub(super) Arc<Shared>);

#[async_trait]
impl Connect for Subsystem {
    async fn connect(&self) -> Result<SftpStream, HostError> {
        let master = self.0.master().await?;
        let opened = async {
            let io = SshError::Streams;
            let (writer, theirs_in) = pipe::pipe().map_err(io)?;
            let (theirs_out, reader) = pipe::pipe().map_err(io)?;
            let theirs_in = theirs_in.into_blocking_fd().map_err(io)?;
            let theirs_out = theirs_out.into_blocking_fd().map_err(io)?;
            let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
            let null = null.map_err(io)?.into();
            let streams = [&theirs_in, &theirs_out, &null];
            let session = process::open(&master, Runs::Subsystem("sftp"), streams).await?;
            Ok(SftpStream {
                reader: Box::new(reader),
                writer: Box::new(writer),
                guard: Box::new((session.slot, session.mux)),
            })
        };
        opened.await.map_err(|source: SshError| HostError::Connect {
            host: self.0.name(),
            source: Arc::new(source),
        })
    }

    /// The connection's shell knows the account's rights as the kernel does.
    async fn access(&self, path: &Path, access: Access) -> Option<Result<bool, HostError>> {
        let path = std::str::from_utf8(path.as_os_str().as_bytes()).ok()?;
        let line = script::access(path, access).ok()?;
        let asked = async {
            let master = self.0.master().await?;
            let code = master.perform(&line).await;
            code.map(|code| code == 0)
                .map_err(|source| HostError::Process {
                    host: self.0.name(),
                    source: Arc::new(source),
                })
        };
        Some(asked.await)
    }
}
