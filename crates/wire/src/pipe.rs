//! The pipe between the broker and an invocation process: its messages, and how they lie in a stream of bytes.
//!
//! This is arithmetic only: bytes in, messages out. Both sides do their own reading and writing.

use std::marker::PhantomData;

use prost::Message;

pub use crate::generated::pipe::v1::*;

/// The longest message downwards: a module, an input, or the answer to a call with its body.
pub const TO_INVOCATION_BYTES_MAX: usize = 64 << 20;
/// The longest message upwards: the arguments of a call, or a result.
pub const FROM_INVOCATION_BYTES_MAX: usize = 16 << 20;

const LENGTH_BYTES: usize = 4;

/// A message that travels in one direction of the pipe.
pub trait Framed: Message + Default {
    const BYTES_MAX: usize;
}

impl Framed for ToInvocation {
    const BYTES_MAX: usize = TO_INVOCATION_BYTES_MAX;
}

impl Framed for FromInvocation {
    const BYTES_MAX: usize = FROM_INVOCATION_BYTES_MAX;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {len} bytes is longer than {max}")]
    TooLong { len: usize, max: usize },
    #[error("a frame cannot be read")]
    Malformed(#[from] prost::DecodeError),
}

/// A message with its length before it.
pub fn encode<M: Framed>(message: &M) -> Result<Vec<u8>, FrameError> {
    let len = message.encoded_len();
    let length = match u32::try_from(len) {
        Ok(length) if len <= M::BYTES_MAX => length,
        _ => {
            return Err(FrameError::TooLong {
                len,
                max: M::BYTES_MAX,
            });
        }
    };
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + len);
    bytes.extend(length.to_le_bytes());
    message.encode_raw(&mut bytes);
    Ok(bytes)
}

/// Finds messages in what was read so far. After an error it finds nothing more: nobody knows where the next begins.
#[derive(Debug)]
pub struct Decoder<M> {
    buffered: Vec<u8>,
    message: PhantomData<M>,
}

impl<M> Default for Decoder<M> {
    fn default() -> Self {
        Self {
            buffered: Vec::new(),
            message: PhantomData,
        }
    }
}

impl<M: Framed> Decoder<M> {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffered.extend_from_slice(bytes);
    }

    /// The next message, where all of it is there.
    pub fn take(&mut self) -> Result<Option<M>, FrameError> {
        let Some((length, rest)) = self.buffered.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*length) as usize;
        if len > M::BYTES_MAX {
            let max = M::BYTES_MAX;
            return Err(FrameError::TooLong { len, max });
        }
        let Some(body) = rest.get(..len) else {
            return Ok(None);
        };
        let message = M::decode(body)?;
        self.buffered.drain(..LENGTH_BYTES + len);
        Ok(Some(message))
    }

    /// Whether a message has begun and is not there yet: a stream that ends now was cut short.
    pub fn is_within_a_message(&self) -> bool {
        !self.buffered.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use proptest::prelude::*;

    use super::*;

    fn call(id: u32, arguments_json: &str) -> FromInvocation {
        FromInvocation {
            frame: Some(from_invocation::Frame::Call(Call {
                id,
                method: 3,
                arguments_json: arguments_json.into(),
            })),
        }
    }

    proptest! {
        /// D9: whatever the pieces in which bytes come, the same messages come out.
        #[test]
        fn d9_messages_survive_any_cut(texts in proptest::collection::vec(".{0,40}", 0..6), piece in 1usize..50) {
            let sent: Vec<_> = texts.iter().zip(1..).map(|(text, id)| call(id, text)).collect();
            let bytes: Vec<u8> = sent.iter().flat_map(|message| encode(message).unwrap()).collect();
            let mut decoder = Decoder::<FromInvocation>::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(piece) {
                decoder.push(piece);
                while let Some(message) = decoder.take().unwrap() {
                    got.push(message);
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert!(!decoder.is_within_a_message());
        }

        /// D9, O10: no bytes at all make the decoder panic, or hold more than was given.
        #[test]
        fn o10_any_bytes_are_messages_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::<FromInvocation>::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.take() {}
        }
    }

    #[test]
    fn o10_a_frame_that_says_it_is_too_long_is_refused_before_it_is_read() {
        let mut decoder = Decoder::<FromInvocation>::default();
        let len = u32::try_from(FROM_INVOCATION_BYTES_MAX + 1).unwrap();
        decoder.push(&len.to_le_bytes());
        let refused = decoder.take().unwrap_err();
        assert!(matches!(refused, FrameError::TooLong { .. }), "{refused}");
    }
}
