//! Bodies: streamed as they come, never gathered, with a bound on silence.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body that is known as a whole.
pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that passes through, and fails after `idle` without a frame.
pub(crate) fn passing<B>(body: B, idle: Duration) -> Body
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let inner = Box::pin(body.map_err(Into::into));
    IdleBody {
        inner,
        idle,
        silence: Box::pin(tokio::time::sleep(idle)),
    }
    .boxed_unsync()
}

#[derive(Debug, thiserror::Error)]
#[error("no data for {0:?}")]
struct Idle(Duration);

struct IdleBody<B> {
    inner: Pin<Box<B>>,
    idle: Duration,
    silence: Pin<Box<Sleep>>,
}

impl<B> HttpBody for IdleBody<B>
where
    B: HttpBody<Data = Bytes, Error = BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = self.inner.as_mut().poll_frame(cx) {
            let due = Instant::now() + self.idle;
            self.silence.as_mut().reset(due);
            return Poll::Ready(frame);
        }
        ready!(self.silence.as_mut().poll(cx));
        Poll::Ready(Some(Err(Box::new(Idle(self.idle)))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
