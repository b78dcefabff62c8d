//! Taking requests apart.

use std::{ffi::CString, io};

use super::PACKET_MAX;

/// The first packet without its length; none where it is not complete.
pub(super) fn next(bytes: &[u8]) -> io::Result<Option<&[u8]>> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length == 0 || length > PACKET_MAX {
        return Err(malformed());
    }
    Ok(rest.get(..length))
}

pub(super) fn malformed() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADMSG)
}

/// Reads from the front. What is missing ends the server: both ends are of one build.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

/// What an attribute block sets.
#[derive(Default)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) owner: Option<(u32, u32)>,
    pub(super) permissions: Option<u32>,
    pub(super) times: Option<(u32, u32)>,
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> io::Result<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> io::Result<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn string(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.u32()?).map_err(|_| malformed())?;
        let (head, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn path(&mut self) -> io::Result<CString> {
        CString::new(self.string()?).map_err(|_| malformed())
    }

    pub(super) fn handle(&mut self) -> io::Result<u32> {
        let bytes = self.string()?.try_into().map_err(|_| malformed())?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// Seconds and nanoseconds.
    pub(super) fn time(&mut self) -> io::Result<libc::timespec> {
        let seconds = self.take().map(i64::from_be_bytes)?;
        let nanoseconds = self.u32()?;
        Ok(libc::timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds.into(),
        })
    }

    pub(super) fn attributes(&mut self) -> io::Result<Attributes> {
        let flags = self.u32()?;
        let mut found = Attributes::default();
        if flags & 1 != 0 {
            found.size = Some(self.u64()?);
        }
        if flags & 2 != 0 {
            found.owner = Some((self.u32()?, self.u32()?));
        }
        if flags & 4 != 0 {
            found.permissions = Some(self.u32()?);
        }
        if flags & 8 != 0 {
            found.times = Some((self.u32()?, self.u32()?));
        }
        Ok(found)
    }
}
