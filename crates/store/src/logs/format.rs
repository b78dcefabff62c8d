//! The bytes of a log file.
//!
//! ```text
//! file    8 bytes  "BHLOG\0\0\1"         then records, without a gap
//! record  4        length of the body
//!         4        CRC-32C of all that follows in the record
//!         8        sequence, from 1, each one more than the last
//!         8        time in milliseconds since the epoch
//!         1        stream: 0 stdout, 1 stderr, 2 system
//!         1        kind: 0 raw output, 1 a marker as JSON
//!         n        body
//! ```
//! Numbers are little-endian. A record that is cut short or whose checksum does not fit is the end of the
//! file: it was never acknowledged.

use bulkhead_model::Stream;
use bytes::Bytes;
use crc::{CRC_32_ISCSI, Crc, Table};
use serde::{Deserialize, Serialize};

pub(crate) const MAGIC: &[u8; 8] = b"BHLOG\0\0\x01";
pub(crate) const HEADER: usize = 26;
/// The largest body; longer output becomes several records.
pub const MAX_BODY: usize = 64 << 10;

const CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// What stands in a log beside output: said by the log itself, never by a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "marker", rename_all = "snake_case")]
pub enum Marker {
    /// Output that could not be kept is missing here.
    Gap {
        why: GapReason,
        bytes: u64,
        lines: u64,
    },
    /// The phase's limit is reached; what follows is only counted.
    Limit { max_bytes: u64 },
    /// So much was counted after the limit.
    Truncated { bytes: u64, lines: u64 },
    /// The log is complete.
    End { how: LogEnd },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// The store failed for longer than could be bridged.
    Store,
    DiskFull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogEnd {
    /// Its writer closed it.
    Closed,
    /// Its writer was killed; the log ends with what was acknowledged.
    Recovered,
}

impl std::fmt::Display for Marker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gap { why, bytes, lines } => {
                let why = match why {
                    GapReason::Store => "the log could not be written",
                    GapReason::DiskFull => "the disk was full",
                };
                write!(f, "gap: {bytes} bytes, {lines} lines are missing: {why}")
            }
            Self::Limit { max_bytes } => {
                write!(
                    f,
                    "the limit of {max_bytes} bytes is reached; the rest is only counted"
                )
            }
            Self::Truncated { bytes, lines } => {
                write!(f, "truncated: {bytes} bytes, {lines} lines")
            }
            Self::End {
                how: LogEnd::Closed,
            } => f.write_str("end of the log"),
            Self::End {
                how: LogEnd::Recovered,
            } => f.write_str("end of the log: its writer was killed"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Output as it came (masked), cut anywhere, at most [`MAX_BODY`] bytes.
    Output(Bytes),
    Marker(Marker),
}

/// An entry without its place in the sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    pub at_ms: i64,
    pub stream: Stream,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: u64,
    pub at_ms: i64,
    pub stream: Stream,
    pub body: Body,
}

impl Entry {
    /// What it takes of a page or a buffer.
    pub fn size(&self) -> usize {
        match &self.body {
            Body::Output(bytes) => bytes.len(),
            Body::Marker(_) => 64,
        }
    }
}

/// Appends a record.
pub(crate) fn encode(seq: u64, entry: &NewEntry, into: &mut Vec<u8>) -> serde_json::Result<()> {
    let json;
    let (kind, body) = match &entry.body {
        Body::Output(bytes) => (0, bytes.as_ref()),
        Body::Marker(marker) => {
            json = serde_json::to_vec(marker)?;
            (1, json.as_slice())
        }
    };
    let start = into.len();
    // Bodies are at most MAX_BODY, so the length fits.
    into.extend_from_slice(&(u32::try_from(body.len()).unwrap_or(u32::MAX)).to_le_bytes());
    into.extend_from_slice(&[0; 4]);
    into.extend_from_slice(&seq.to_le_bytes());
    into.extend_from_slice(&entry.at_ms.to_le_bytes());
    into.push(stream_code(entry.stream));
    into.push(kind);
    into.extend_from_slice(body);
    let sum = CRC.checksum(&into[start + 8..]);
    into[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// The first record of the bytes with its length; none where it is cut short or damaged.
pub(crate) fn decode(bytes: &Bytes) -> Option<(Entry, usize)> {
    let header = bytes.get(..HEADER)?;
    let len = usize::try_from(u32::from_le_bytes(header[..4].try_into().ok()?)).ok()?;
    let whole = HEADER + len;
    if len > MAX_BODY || bytes.len() < whole {
        return None;
    }
    let sum = u32::from_le_bytes(header[4..8].try_into().ok()?);
    if CRC.checksum(&bytes[8..whole]) != sum {
        return None;
    }
    let body = bytes.slice(HEADER..whole);
    let entry = Entry {
        seq: u64::from_le_bytes(header[8..16].try_into().ok()?),
        at_ms: i64::from_le_bytes(header[16..24].try_into().ok()?),
        stream: stream_of(header[24])?,
        body: match header[25] {
            0 => Body::Output(body),
            1 => Body::Marker(serde_json::from_slice(&body).ok()?),
            _ => return None,
        },
    };
    Some((entry, whole))
}

const fn stream_code(stream: Stream) -> u8 {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
        Stream::System => 2,
    }
}

const fn stream_of(code: u8) -> Option<Stream> {
    match code {
        0 => Some(Stream::Stdout),
        1 => Some(Stream::Stderr),
        2 => Some(Stream::System),
        _ => None,
    }
}
