//! SFTP version 3's packets: requests are built, replies taken apart. Every string is bytes.

use bytes::{Buf as _, Bytes};

/// No packet of the server may be longer; OpenSSH's own bound is half of it.
pub(super) const PACKET_MAX: usize = 512 << 10;
/// What every server takes and gives in one packet, where it does not say more.
pub(super) const CHUNK_PLAIN: usize = 32 << 10;
/// No path in a request is longer: far above any kernel's bound, far below a packet's.
pub(super) const PATH_BYTES_MAX: usize = 32 << 10;

pub(super) const VERSION: u32 = 3;

/// Types of packets.
pub(super) mod kind {
    pub(in super::super) const INIT: u8 = 1;
    pub(in super::super) const VERSION: u8 = 2;
    pub(in super::super) const OPEN: u8 = 3;
    pub(in super::super) const CLOSE: u8 = 4;
    pub(in super::super) const READ: u8 = 5;
    pub(in super::super) const WRITE: u8 = 6;
    pub(in super::super) const LSTAT: u8 = 7;
    pub(in super::super) const FSTAT: u8 = 8;
    pub(in super::super) const SETSTAT: u8 = 9;
    pub(in super::super) const FSETSTAT: u8 = 10;
    pub(in super::super) const OPENDIR: u8 = 11;
    pub(in super::super) const READDIR: u8 = 12;
    pub(in super::super) const REMOVE: u8 = 13;
    pub(in super::super) const MKDIR: u8 = 14;
    pub(in super::super) const RMDIR: u8 = 15;
    pub(in super::super) const REALPATH: u8 = 16;
    pub(in super::super) const STAT: u8 = 17;
    pub(in super::super) const READLINK: u8 = 19;
    pub(in super::super) const SYMLINK: u8 = 20;
    pub(in super::super) const STATUS: u8 = 101;
    pub(in super::super) const HANDLE: u8 = 102;
    pub(in super::super) const DATA: u8 = 103;
    pub(in super::super) const NAME: u8 = 104;
    pub(in super::super) const ATTRS: u8 = 105;
    pub(in super::super) const EXTENDED: u8 = 200;
    pub(in super::super) const EXTENDED_REPLY: u8 = 201;
}

/// Codes of a status packet.
pub(super) mod code {
    pub(in super::super) const OK: u32 = 0;
    pub(in super::super) const EOF: u32 = 1;
    pub(in super::super) const NO_SUCH_FILE: u32 = 2;
    pub(in super::super) const PERMISSION_DENIED: u32 = 3;
    pub(in super::super) const BAD_MESSAGE: u32 = 5;
    pub(in super::super) const UNSUPPORTED: u32 = 8;
}

/// Bits that say which attributes follow.
mod has {
    pub(super) const SIZE: u32 = 1;
    pub(super) const OWNER: u32 = 2;
    pub(super) const PERMISSIONS: u32 = 4;
    pub(super) const TIMES: u32 = 8;
    pub(super) const EXTENDED: u32 = 1 << 31;
}

/// The server's packet does not follow the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a packet of the file server is malformed")]
pub(super) struct Malformed;

/// A packet that is ready to be written: its head, and data that follows it without having been copied.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) head: Vec<u8>,
    pub(super) data: Bytes,
}

/// A request in the making.
#[derive(Debug)]
pub(super) struct Request {
    head: Vec<u8>,
    data: Bytes,
}

/// Length, type and id stand in front.
const HEAD: usize = 9;

impl Request {
    pub(super) fn new(kind: u8) -> Self {
        let mut head = Vec::with_capacity(64);
        head.extend_from_slice(&[0, 0, 0, 0, kind, 0, 0, 0, 0]);
        Self {
            head,
            data: Bytes::new(),
        }
    }

    pub(super) fn extended(name: &str) -> Self {
        Self::new(kind::EXTENDED).string(name.as_bytes())
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.head.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.head.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn i64(mut self, value: i64) -> Self {
        self.head.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Paths and handles are bounded before they come here.
    pub(super) fn string(mut self, bytes: &[u8]) -> Self {
        self.head.extend_from_slice(&length(bytes.len()));
        self.head.extend_from_slice(bytes);
        self
    }

    pub(super) fn change(self, change: &Change) -> Self {
        match *change {
            Change::Nothing => self.u32(0),
            Change::Size(size) => self.u32(has::SIZE).u64(size),
            Change::Permissions(bits) => self.u32(has::PERMISSIONS).u32(bits),
            Change::Owner(uid, gid) => self.u32(has::OWNER).u32(uid).u32(gid),
            Change::Times(accessed, modified) => self.u32(has::TIMES).u32(accessed).u32(modified),
        }
    }

    /// The string that ends the request.
    pub(super) fn data(mut self, data: Bytes) -> Self {
        self.head.extend_from_slice(&length(data.len()));
        self.data = data;
        self
    }

    pub(super) fn finish(mut self, id: u32) -> Packet {
        let total = length(self.head.len() - 4 + self.data.len());
        self.head[..4].copy_from_slice(&total);
        self.head[HEAD - 4..HEAD].copy_from_slice(&id.to_be_bytes());
        Packet {
            head: self.head,
            data: self.data,
        }
    }
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

/// The first packet, which has a version in the place of an id.
pub(super) fn init() -> Vec<u8> {
    let mut packet = vec![0, 0, 0, 5, kind::INIT];
    packet.extend_from_slice(&VERSION.to_be_bytes());
    packet
}

/// What one request sets; a server sets nothing where it fails at the first of several.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Nothing,
    Size(u64),
    Permissions(u32),
    Owner(u32, u32),
    Times(u32, u32),
}

/// What the server says of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) owner: Option<(u32, u32)>,
    /// With the bits of the kind.
    pub(super) mode: Option<u32>,
    /// Seconds: accessed, modified.
    pub(super) times: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: u32,
    /// The kernel's own number, where the server is ours.
    pub(super) errno: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: Bytes,
    pub(super) attributes: Attributes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Status(Status),
    Handle(Bytes),
    Data(Bytes),
    Names(Vec<Name>),
    Attributes(Attributes),
    Extended(Bytes),
}

/// Takes bytes apart from the front.
#[derive(Debug)]
pub(super) struct Decoder(pub(super) Bytes);

impl Decoder {
    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.0.try_get_u8().map_err(|_| Malformed)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.0.try_get_u32().map_err(|_| Malformed)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.0.try_get_u64().map_err(|_| Malformed)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.0.try_get_i64().map_err(|_| Malformed)
    }

    pub(super) fn string(&mut self) -> Result<Bytes, Malformed> {
        let length = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        if length > self.0.len() {
            return Err(Malformed);
        }
        Ok(self.0.split_to(length))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn attributes(&mut self) -> Result<Attributes, Malformed> {
        let flags = self.u32()?;
        let mut found = Attributes::default();
        if flags & has::SIZE != 0 {
            found.size = Some(self.u64()?);
        }
        if flags & has::OWNER != 0 {
            found.owner = Some((self.u32()?, self.u32()?));
        }
        if flags & has::PERMISSIONS != 0 {
            found.mode = Some(self.u32()?);
        }
        if flags & has::TIMES != 0 {
            found.times = Some((self.u32()?, self.u32()?));
        }
        if flags & has::EXTENDED != 0 {
            for _ in 0..self.u32()? {
                self.string()?;
                self.string()?;
            }
        }
        Ok(found)
    }

    fn names(&mut self) -> Result<Vec<Name>, Malformed> {
        let count = self.u32()?;
        // Nothing is reserved for a count that the packet merely claims.
        let mut names = Vec::new();
        for _ in 0..count {
            let name = self.string()?;
            // The line of `ls -l` says nothing that the attributes do not say.
            self.string()?;
            let attributes = self.attributes()?;
            names.push(Name { name, attributes });
        }
        Ok(names)
    }

    /// Old servers leave the words out; ours adds the kernel's number after them.
    fn status(&mut self) -> Result<Status, Malformed> {
        let code = self.u32()?;
        let words = self.string().and_then(|_| self.string());
        let errno = words.and_then(|_| self.u32()).ok();
        let errno = errno.and_then(|number| i32::try_from(number).ok());
        Ok(Status { code, errno })
    }
}

/// A packet without its length, as it came.
pub(super) fn reply(packet: Bytes) -> Result<(u32, Reply), Malformed> {
    let mut from = Decoder(packet);
    let kind = from.u8()?;
    let id = from.u32()?;
    let reply = match kind {
        kind::STATUS => Reply::Status(from.status()?),
        kind::HANDLE => Reply::Handle(from.string()?),
        kind::DATA => Reply::Data(from.string()?),
        kind::NAME => Reply::Names(from.names()?),
        kind::ATTRS => Reply::Attributes(from.attributes()?),
        kind::EXTENDED_REPLY => Reply::Extended(from.0),
        _ => return Err(Malformed),
    };
    Ok((id, reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = vec![kind::NAME];
        for part in [&7_u32.to_be_bytes()[..], &1_u32.to_be_bytes()] {
            bytes.extend_from_slice(part);
        }
        for name in [&b"\xffx"[..], b"line"] {
            bytes.extend_from_slice(&length(name.len()));
            bytes.extend_from_slice(name);
        }
        bytes.extend_from_slice(&has::PERMISSIONS.to_be_bytes());
        bytes.extend_from_slice(&0o100_644_u32.to_be_bytes());
        bytes
    }

    #[test]
    fn names_keep_bytes_that_are_not_text() {
        let (id, got) = reply(sample().into()).expect("it is well formed");
        let attributes = Attributes {
            mode: Some(0o100_644),
            ..Attributes::default()
        };
        let name = Bytes::from_static(b"\xffx");
        assert_eq!(
            (id, got),
            (7, Reply::Names(vec![Name { name, attributes }]))
        );
    }

    #[test]
    fn every_cut_is_malformed() {
        let whole = sample();
        for end in 0..whole.len() {
            assert_eq!(
                reply(Bytes::copy_from_slice(&whole[..end])),
                Err(Malformed),
                "{end}"
            );
        }
    }

    #[test]
    fn a_claimed_count_reserves_nothing() {
        let mut bytes = vec![kind::NAME, 0, 0, 0, 1];
        bytes.extend_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(reply(bytes.into()), Err(Malformed));
    }

    #[test]
    fn only_our_servers_status_carries_the_kernels_number() {
        let mut bytes = vec![kind::STATUS, 0, 0, 0, 1];
        bytes.extend_from_slice(&4_u32.to_be_bytes());
        let status = |errno| Ok((1, Reply::Status(Status { code: 4, errno })));
        assert_eq!(reply(Bytes::copy_from_slice(&bytes)), status(None));
        for _ in 0..2 {
            bytes.extend_from_slice(&length(1));
            bytes.push(b'x');
        }
        assert_eq!(reply(Bytes::copy_from_slice(&bytes)), status(None));
        bytes.extend_from_slice(&17_u32.to_be_bytes());
        assert_eq!(reply(bytes.into()), status(Some(17)));
    }
}
