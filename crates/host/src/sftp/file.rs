//! An open file on the server.

use std::{sync::Arc, time::SystemTime};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use rustix::io::Errno;

use super::{
    cause::Tried,
    lost, plain,
    session::{Lost, Pending, Session},
    stat,
    wire::{Change, Decoder, Malformed, Reply, Request, Status, code, kind},
};
use crate::{FsError, OpenFile, Stat};

/// The most that one read gives, whatever is asked for: it is held in memory twice.
const READ_BYTES_MAX: usize = 4 << 20;

pub(super) struct SftpFile {
    session: Arc<Session>,
    /// Taken when the file is closed.
    handle: Option<Bytes>,
}

impl SftpFile {
    pub(super) const fn new(session: Arc<Session>, handle: Bytes) -> Self {
        Self {
            session,
            handle: Some(handle),
        }
    }

    fn handle(&self, syscall: &'static str) -> Result<&Bytes, FsError> {
        let closed = || plain(Errno::BADF, syscall, None);
        self.handle.as_ref().ok_or_else(closed)
    }

    async fn failed(&self, syscall: &'static str, tried: Tried<'_>, status: Status) -> FsError {
        plain(self.session.cause(tried, status).await, syscall, None)
    }

    async fn ask(&self, syscall: &'static str, request: Request) -> Result<Reply, FsError> {
        let reply = self.session.ask(request).await;
        reply.map_err(|why| lost(&why, syscall, None))
    }

    async fn done(&self, syscall: &'static str, request: Request) -> Result<(), FsError> {
        match self.ask(syscall, request).await? {
            Reply::Status(Status { code: code::OK, .. }) => Ok(()),
            Reply::Status(status) => Err(self.failed(syscall, Tried::Handle, status).await),
            _ => Err(malformed(syscall)),
        }
    }

    async fn set(&self, syscall: &'static str, change: Change) -> Result<(), FsError> {
        let handle = self.handle(syscall)?;
        let request = Request::new(kind::FSETSTAT).string(handle).change(&change);
        self.done(syscall, request).await
    }

    /// One chunk's bytes; none at the end of the file.
    async fn chunk(&self, handle: &Bytes, pending: Pending) -> Result<Bytes, FsError> {
        match pending
            .reply()
            .await
            .map_err(|why| lost(&why, "read", None))?
        {
            Reply::Data(data) => Ok(data),
            Reply::Status(Status {
                code: code::EOF, ..
            }) => Ok(Bytes::new()),
            Reply::Status(status) => Err(self.failed("read", Tried::Read(handle), status).await),
            _ => Err(malformed("read")),
        }
    }
}

fn malformed(syscall: &'static str) -> FsError {
    lost(&Lost::Malformed(Malformed), syscall, None)
}

#[async_trait]
impl OpenFile for SftpFile {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, FsError> {
        let handle = self.handle("read")?;
        let most = self.session.chunks.read;
        let len = len.min(READ_BYTES_MAX);
        let (mut at, mut pending) = (0, Vec::with_capacity(len.div_ceil(most)));
        while at < len {
            let size = most.min(len - at);
            let request = Request::new(kind::READ)
                .string(handle)
                .u64(offset.saturating_add(at as u64))
                .u32(u32::try_from(size).unwrap_or(u32::MAX));
            let sent = self.session.send(request).await;
            pending.push((size, sent.map_err(|why| lost(&why, "read", None))?));
            at += size;
        }
        let alone = pending.len() == 1;
        let mut read = BytesMut::new();
        for (size, pending) in pending {
            let data = match self.chunk(handle, pending).await {
                // What was read before it is given; the next read meets the same error.
                Err(_) if !read.is_empty() => break,
                other => other?,
            };
            if alone {
                return Ok(data);
            }
            read.extend_from_slice(&data);
            if data.len() < size {
                break;
            }
        }
        Ok(read.freeze())
    }

    async fn write_at(&self, offset: u64, mut data: Bytes) -> Result<(), FsError> {
        let handle = self.handle("write")?;
        let most = self.session.chunks.write;
        let (mut at, mut pending) = (offset, Vec::with_capacity(data.len().div_ceil(most)));
        while !data.is_empty() {
            let chunk = data.split_to(most.min(data.len()));
            let size = chunk.len();
            let request = Request::new(kind::WRITE).string(handle).u64(at).data(chunk);
            let sent = self.session.send(request).await;
            pending.push(sent.map_err(|why| lost(&why, "write", None))?);
            at = at.saturating_add(size as u64);
        }
        for pending in pending {
            match pending
                .reply()
                .await
                .map_err(|why| lost(&why, "write", None))?
            {
                Reply::Status(Status { code: code::OK, .. }) => {}
                Reply::Status(status) => {
                    return Err(self.failed("write", Tried::Write(handle), status).await);
                }
                _ => return Err(malformed("write")),
            }
        }
        Ok(())
    }

    async fn stat(&self) -> Result<Stat, FsError> {
        let handle = self.handle("fstat")?;
        let request = if self.session.extensions.ours {
            Request::extended("fstat@bulkhead").string(handle)
        } else {
            Request::new(kind::FSTAT).string(handle)
        };
        match self.ask("fstat", request).await? {
            Reply::Attributes(attributes) => Ok(stat::plain(&attributes)),
            Reply::Extended(body) => {
                stat::whole(&mut Decoder(body)).map_err(|_| malformed("fstat"))
            }
            Reply::Status(status) => Err(self.failed("fstat", Tried::Handle, status).await),
            _ => Err(malformed("fstat")),
        }
    }

    async fn truncate(&self, len: u64) -> Result<(), FsError> {
        self.set("ftruncate", Change::Size(len)).await
    }

    async fn chmod(&self, permissions: u32) -> Result<(), FsError> {
        self.set("fchmod", Change::Permissions(permissions & 0o7777))
            .await
    }

    async fn chown(&self, uid: u32, gid: u32) -> Result<(), FsError> {
        self.set("fchown", Change::Owner(uid, gid)).await
    }

    async fn utimes(&self, accessed: SystemTime, modified: SystemTime) -> Result<(), FsError> {
        if !self.session.extensions.ours {
            let change = Change::Times(stat::seconds(accessed), stat::seconds(modified));
            return self.set("futime", change).await;
        }
        let (a, m) = (stat::since_epoch(accessed), stat::since_epoch(modified));
        let request = Request::extended("futimes@bulkhead")
            .string(self.handle("futime")?)
            .i64(a.0)
            .u32(a.1)
            .i64(m.0)
            .u32(m.1);
        self.done("futime", request).await
    }

    async fn sync(&self) -> Result<(), FsError> {
        if !self.session.extensions.fsync {
            return Err(plain(Errno::NOSYS, "fsync", None));
        }
        let request = Request::extended("fsync@openssh.com").string(self.handle("fsync")?);
        self.done("fsync", request).await
    }

    async fn close(mut self: Box<Self>) -> Result<(), FsError> {
        let request = Request::new(kind::CLOSE).string(self.handle("close")?);
        // Queued first: a caller that goes away now has closed the file all the same.
        let sent = self.session.send(request).await;
        let pending = sent.map_err(|why| lost(&why, "close", None))?;
        self.handle = None;
        match pending
            .reply()
            .await
            .map_err(|why| lost(&why, "close", None))?
        {
            Reply::Status(Status { code: code::OK, .. }) => Ok(()),
            Reply::Status(status) => Err(self.failed("close", Tried::Handle, status).await),
            _ => Err(malformed("close")),
        }
    }
}

impl Drop for SftpFile {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.session.forget(handle);
        }
    }
}
