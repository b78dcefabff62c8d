//! Changes as they happen, from our own server.

use std::{collections::VecDeque, ffi::OsStr, os::unix::ffi::OsStrExt as _, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    lost, plain,
    session::{Lost, Pending, Session},
    wire::{Decoder, Malformed, Reply, Request, Status, code},
};
use crate::{Change, ChangeKind, FsError, Watcher};

const SYSCALL: &str = "watch";

/// One watched place. The server answers a request for changes when there are some, so one is always under way.
pub(super) struct SftpWatcher {
    session: Arc<Session>,
    handle: Bytes,
    asked: Option<Pending>,
    seen: VecDeque<Change>,
}

impl SftpWatcher {
    pub(super) const fn new(session: Arc<Session>, handle: Bytes) -> Self {
        Self {
            session,
            handle,
            asked: None,
            seen: VecDeque::new(),
        }
    }

    async fn more(&mut self) -> Result<Reply, Lost> {
        if self.asked.is_none() {
            let request = Request::extended("changes@bulkhead").string(&self.handle);
            self.asked = Some(self.session.send(request).await?);
        }
        // Kept until it is answered, so that a caller who goes away loses no change.
        match &mut self.asked {
            Some(asked) => {
                let reply = asked.wait().await;
                self.asked = None;
                reply
            }
            None => Err(Lost::Ended),
        }
    }
}

#[async_trait]
impl Watcher for SftpWatcher {
    async fn next(&mut self) -> Option<Result<Change, FsError>> {
        loop {
            if let Some(change) = self.seen.pop_front() {
                return Some(Ok(change));
            }
            match self.more().await {
                Ok(Reply::Extended(body)) => match changes(body) {
                    Ok(changes) => self.seen = changes,
                    Err(malformed) => return Some(Err(lost(&malformed.into(), SYSCALL, None))),
                },
                Ok(Reply::Status(Status {
                    code: code::EOF, ..
                }))
                | Err(Lost::Ended) => return None,
                Ok(Reply::Status(Status {
                    errno: Some(errno), ..
                })) => {
                    let errno = rustix::io::Errno::from_raw_os_error(errno);
                    return Some(Err(plain(errno, SYSCALL, None)));
                }
                Ok(_) => return Some(Err(lost(&Lost::Malformed(Malformed), SYSCALL, None))),
                Err(why) => return Some(Err(lost(&why, SYSCALL, None))),
            }
        }
    }
}

fn changes(body: Bytes) -> Result<VecDeque<Change>, Malformed> {
    let mut from = Decoder(body);
    let mut changes = VecDeque::new();
    while !from.is_empty() {
        let kind = match from.u8()? {
            0 => ChangeKind::Rename,
            _ => ChangeKind::Change,
        };
        let name = OsStr::from_bytes(&from.string()?).to_owned();
        changes.push_back(Change { kind, name });
    }
    Ok(changes)
}

impl Drop for SftpWatcher {
    fn drop(&mut self) {
        self.session.forget(std::mem::take(&mut self.handle));
    }
}
