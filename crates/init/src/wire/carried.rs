//! How accepted streams share one pair of pipes with the helper that listens.
//!
//! A frame is its kind, the stream's number and the payload's length, then the payload; numbers are big-endian. Before the first
//! frame the helper says with [`STATUS`] bytes how it began: the kernel's error number, 0 where it listens, and the port.
//! Each side may send [`STREAM_WINDOW`] bytes of a stream before the other grants more.

/// Error number (4 bytes) and port (2 bytes).
pub const STATUS: usize = 6;
pub const CARRIED_HEADER: usize = 9;
/// The longest payload.
pub const CARRIED_MAX: usize = 32 << 10;
pub const STREAM_WINDOW: usize = 256 << 10;
/// Streams at once; more wait to be accepted.
pub const STREAMS_MAX: usize = 256;

/// A stream was accepted.
pub const OPENED: u8 = 1;
pub const BYTES: u8 = 2;
/// Nothing more comes in this direction.
pub const ENDED: u8 = 3;
/// Both directions are over, or nobody wants them any more.
pub const CLOSED: u8 = 4;
/// So many bytes more may be sent: 4 bytes.
pub const GRANTED: u8 = 5;
/// From the host: accept no more. The streams go on.
pub const STOP: u8 = 6;

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    pub kind: u8,
    pub stream: u32,
    pub length: usize,
}

impl Carried {
    pub fn encode(kind: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
        out.push(kind);
        out.extend_from_slice(&stream.to_be_bytes());
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(payload);
    }

    /// None where the payload claims to be longer than any is.
    pub fn decode(header: &[u8; CARRIED_HEADER]) -> Option<Self> {
        let [kind, s0, s1, s2, s3, l0, l1, l2, l3] = *header;
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        let length = usize::try_from(length).ok()?;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        (length <= CARRIED_MAX).then_some(Self {
            kind,
            stream,
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_what_follows_and_no_more_than_may() {
        let mut out = Vec::new();
        Carried::encode(BYTES, 7, b"abc", &mut out);
        let (header, payload) = out.split_first_chunk().expect("there is a header");
        let expected = Carried {
            kind: BYTES,
            stream: 7,
            length: 3,
        };
        assert_eq!(Carried::decode(header), Some(expected));
        assert_eq!(payload, b"abc");
        assert_eq!(Carried::decode(&[BYTES, 0, 0, 0, 1, 0, 1, 0, 0]), None);
    }
}
