//! Frames: a kind, a length, bytes. A frame that breaks a bound ends the conversation.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

/// The most bytes that one frame carries.
pub const MAX_PAYLOAD: usize = 1 << 20;

const HEADER: usize = 5;

/// The conversation between executor and session broke.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("reading from or writing to the other end of the session's socket")]
    Io(#[from] std::io::Error),
    #[error("a frame of kind {kind} with {length} bytes is larger than the limit of {MAX_PAYLOAD}")]
    TooLarge { kind: u8, length: usize },
    #[error("the other end closed the socket in the middle of a frame")]
    CutOff,
    #[error("a frame of kind {0} does not belong here")]
    UnexpectedKind(u8),
    #[error("the JSON in a frame of kind {kind} is not of its form")]
    Json { kind: u8, source: serde_json::Error },
    #[error("a frame of kind {kind} is malformed: {what}")]
    Malformed { kind: u8, what: &'static str },
}

/// One frame, not yet understood.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub payload: Bytes,
}

/// A frame may carry secrets, so only its shape is shown.
impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame(kind {}, {} bytes)", self.kind, self.payload.len())
    }
}

/// Cuts a stream of bytes into frames. Memory is bounded by one frame: the length is checked before any
/// of its bytes are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameCodec;

impl Decoder for FrameCodec {
    type Item = Frame;
    type Error = WireError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, WireError> {
        let Some(header) = buffer.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [kind, length @ ..] = *header;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_PAYLOAD {
            return Err(WireError::TooLarge { kind, length });
        }
        if buffer.len() < HEADER + length {
            buffer.reserve(HEADER + length - buffer.len());
            return Ok(None);
        }
        buffer.advance(HEADER);
        Ok(Some(Frame {
            kind,
            payload: buffer.split_to(length).freeze(),
        }))
    }

    fn decode_eof(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, WireError> {
        match self.decode(buffer)? {
            Some(frame) => Ok(Some(frame)),
            None if buffer.is_empty() => Ok(None),
            None => Err(WireError::CutOff),
        }
    }
}

impl Encoder<Frame> for FrameCodec {
    type Error = WireError;

    fn encode(&mut self, frame: Frame, buffer: &mut BytesMut) -> Result<(), WireError> {
        let (kind, length) = (frame.kind, frame.payload.len());
        let too_large = WireError::TooLarge { kind, length };
        if length > MAX_PAYLOAD {
            return Err(too_large);
        }
        buffer.reserve(HEADER + length);
        buffer.put_u8(kind);
        buffer.put_u32_le(u32::try_from(length).map_err(|_| too_large)?);
        buffer.put_slice(&frame.payload);
        Ok(())
    }
}
