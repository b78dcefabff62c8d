//! What an executor and a session say to each other, over one stream socket.
//!
//! ```text
//! executor                                   session process
//!    │── 1 Order, or 4 Session ─────────────────▶│  once, first
//!    │── 3 Artifact … (each of the order's) ────▶│  before any work starts
//!    │◀─ 16 Event · 17 Log · 18 Artifact … ──────│  in the order in which they happened
//!    │◀─ 20 Summary, once, before the agent ─────│  what the agent can reach (H16)
//!    │◀─ 21 Awaiting ────────────────────────────│  a turn is over, and a prompt is waited for
//!    │── 5 Prompt · 6 GiveUpTurn … ─────────────▶│  sessions of a person: at any time
//!    │── 2 Cancel, or 7 Pause ──────────────────▶│  at any time
//!    │◀─ 19 Report, then end of stream ──────────│  last
//! ```
//!
//! A frame is `[kind u8][length u32, little endian][payload]` with at most [`MAX_PAYLOAD`] bytes of payload.
//! The end of the executor's side means that the executor is gone: the session ends its sandbox and exits.
//! Back-pressure is the socket's own: a session whose executor does not read stops reading its agent.

mod frame;
mod message;
mod report;
mod session;
#[cfg(test)]
mod tests;

pub use frame::{Frame, FrameCodec, MAX_PAYLOAD, WireError};
pub use message::{ArtifactChunk, Delivery, FromSession, MAX_CHUNK, Machine, ToSession};
pub use session::{PromptSource, Resume, SessionDelivery, SessionOrder};

pub use report::{ArtifactKind, Failure, FailureKind, FinishedArtifact, Report};

use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::{FramedRead, FramedWrite};

/// The reading half of either end; `M` is the kind of message that comes in.
#[derive(Debug)]
pub struct Incoming<R, M> {
    frames: FramedRead<R, FrameCodec>,
    _message: std::marker::PhantomData<fn() -> M>,
}

impl<R: AsyncRead + Unpin, M: TryFrom<Frame, Error = WireError>> Incoming<R, M> {
    pub fn new(reader: R) -> Self {
        Self {
            frames: FramedRead::new(reader, FrameCodec),
            _message: std::marker::PhantomData,
        }
    }

    /// The next message, or `None` when the other end is gone. May be dropped while it waits: no byte is
    /// lost.
    pub async fn next(&mut self) -> Result<Option<M>, WireError> {
        match self.frames.next().await {
            Some(frame) => M::try_from(frame?).map(Some),
            None => Ok(None),
        }
    }
}

/// The writing half of either end; `M` is the kind of message that goes out.
#[derive(Debug)]
pub struct Outgoing<W, M> {
    frames: FramedWrite<W, FrameCodec>,
    _message: std::marker::PhantomData<fn(M)>,
}

impl<W: AsyncWrite + Unpin, M: TryInto<Frame, Error = WireError>> Outgoing<W, M> {
    pub fn new(writer: W) -> Self {
        Self {
            frames: FramedWrite::new(writer, FrameCodec),
            _message: std::marker::PhantomData,
        }
    }

    /// Sends one message and returns when the socket has taken it.
    pub async fn send(&mut self, message: M) -> Result<(), WireError> {
        self.frames.send(message.try_into()?).await
    }
}

#[cfg(test)]
pub(crate) use tests::delivery as test_delivery;
