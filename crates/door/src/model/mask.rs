//! Takes a credential out of a response, should the upstream repeat it: over chunk borders, without
//! changing lengths, and without holding back more than the beginning of a possible match.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use secrecy::{ExposeSecret, SecretString};

use crate::body::{Body, BoxError};

/// A shorter text would match by chance; such a credential is masked nowhere.
const MIN_LENGTH: usize = 6;
const STAR: u8 = b'*';

/// Replaces every occurrence of `secret` in the body by stars.
pub(super) struct MaskedBody {
    inner: Body,
    secret: SecretString,
    /// The end of what came so far, if it is the beginning of the secret.
    held: BytesMut,
    /// A frame that had to wait for `held`.
    next: Option<Frame<Bytes>>,
    is_over: bool,
}

impl MaskedBody {
    pub(super) fn new(inner: Body, secret: SecretString) -> Self {
        Self {
            inner,
            secret,
            held: BytesMut::new(),
            next: None,
            is_over: false,
        }
    }

    /// What can go on of the bytes so far.
    fn feed(&mut self, data: Bytes) -> Bytes {
        let secret = self.secret.expose_secret().as_bytes();
        if secret.len() < MIN_LENGTH {
            return data;
        }
        if self.held.is_empty() && !data.contains(&secret[0]) {
            return data;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(&data);
        cover(&mut all, secret);
        let keep = partial_match(&all, secret);
        self.held = all.split_off(all.len() - keep);
        all.freeze()
    }
}

/// Whether `text` holds `secret`, where that is long enough to mean anything.
pub(super) fn holds(text: &[u8], secret: &SecretString) -> bool {
    let secret = secret.expose_secret().as_bytes();
    secret.len() >= MIN_LENGTH && find(text, secret).is_some()
}

fn find(text: &[u8], secret: &[u8]) -> Option<usize> {
    text.windows(secret.len())
        .position(|window| window == secret)
}

fn cover(text: &mut [u8], secret: &[u8]) {
    let mut from = 0;
    while let Some(at) = find(&text[from..], secret) {
        let start = from + at;
        text[start..start + secret.len()].fill(STAR);
        from = start + secret.len();
    }
}

/// The length of the longest end of `text` that begins `secret`.
fn partial_match(text: &[u8], secret: &[u8]) -> usize {
    let longest = text.len().min(secret.len() - 1);
    (1..=longest)
        .rev()
        .find(|length| text.ends_with(&secret[..*length]))
        .unwrap_or(0)
}

impl HttpBody for MaskedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(frame) = self.next.take() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => Some(frame),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => None,
            };
            let out = match frame.map(Frame::into_data) {
                Some(Ok(data)) => self.feed(data),
                other => {
                    self.is_over = other.is_none();
                    self.next = other.and_then(Result::err);
                    std::mem::take(&mut self.held).freeze()
                }
            };
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.next.is_none() && self.inner.is_end_stream()
    }

    /// Lengths do not change; what is held is still to come.
    fn size_hint(&self) -> SizeHint {
        let held = u64::try_from(self.held.len()).unwrap_or(u64::MAX);
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use futures::stream;
    use http_body_util::{BodyExt, StreamBody};
    use proptest::prelude::*;

    use super::*;

    fn masked(chunks: Vec<Vec<u8>>, secret: &str) -> Vec<u8> {
        let frames = chunks
            .into_iter()
            .map(|chunk| Ok::<_, BoxError>(Frame::data(Bytes::from(chunk))));
        let inner = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let body = MaskedBody::new(inner, secret.to_owned().into());
        let collected = futures::executor::block_on(body.collect()).unwrap();
        collected.to_bytes().to_vec()
    }

    /// H7: at every place of a border, the credential comes out as stars and the rest unchanged.
    #[test]
    fn a_credential_is_covered_at_every_chunk_border() {
        let text = b"sk-sk-secret-1sk-secret-1 and sk-secre sk-secret-1";
        for first in 0..text.len() {
            for second in first..text.len() {
                let chunks = vec![
                    text[..first].to_vec(),
                    text[first..second].to_vec(),
                    text[second..].to_vec(),
                ];
                let out = masked(chunks, "sk-secret-1");
                assert_eq!(out, b"sk-********************** and sk-secre ***********");
            }
        }
    }

    #[test]
    fn nothing_is_held_back_but_a_possible_beginning() {
        let mut body = MaskedBody::new(crate::body::full(""), "sk-secret-1".to_owned().into());
        assert_eq!(
            body.feed(Bytes::from_static(b"data: hello\n\n")),
            "data: hello\n\n"
        );
        assert_eq!(body.feed(Bytes::from_static(b"ask-sec")), "a");
        assert_eq!(body.feed(Bytes::from_static(b"ond")), "sk-second");
    }

    proptest! {
        #[test]
        fn any_chunks_come_out_in_full_length(chunks in proptest::collection::vec("[ab]{0,9}", 0..12)) {
            let whole = chunks.concat();
            let out = masked(chunks.iter().map(|c| c.clone().into_bytes()).collect(), "aabaab");
            prop_assert_eq!(out.len(), whole.len());
            prop_assert!(find(&out, b"aabaab").is_none());
        }
    }
}
