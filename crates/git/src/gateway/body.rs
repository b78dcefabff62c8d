//! Request bodies: bounded in size, unpacked where the client compressed them, or streamed.

use std::{io::Read as _, time::Duration};

use axum::{body::Body, extract::Request};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{StatusCode, header};

use super::Refused;

/// The whole body of a small request, unpacked. Both sizes, packed and unpacked, stay below the limit.
pub(crate) async fn whole(
    request: Request,
    limit: usize,
    time: Duration,
) -> Result<Bytes, Refused> {
    let too_large = || {
        Refused::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request is larger than {limit} bytes"),
        )
    };
    let encoding = request
        .headers()
        .get(header::CONTENT_ENCODING)
        .map(|value| value.as_bytes().to_vec());
    let reading = axum::body::to_bytes(request.into_body(), limit);
    let body = tokio::time::timeout(time, reading)
        .await
        .map_err(|_| too_slow())?
        .map_err(|_| too_large())?;
    match encoding.as_deref() {
        None | Some(b"identity") => Ok(body),
        Some(b"gzip" | b"x-gzip") => {
            let mut unpacked = Vec::new();
            let mut reader = flate2::read::MultiGzDecoder::new(&*body).take(limit as u64 + 1);
            let read = reader.read_to_end(&mut unpacked);
            read.map_err(|_| {
                Refused::new(
                    StatusCode::BAD_REQUEST,
                    "the request's gzip body is damaged",
                )
            })?;
            if unpacked.len() > limit {
                Err(too_large())
            } else {
                Ok(unpacked.into())
            }
        }
        Some(_) => Err(Refused::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "only gzip is understood",
        )),
    }
}

fn too_slow() -> Refused {
    Refused::new(StatusCode::REQUEST_TIMEOUT, "the request stood still")
}

/// A streamed body with the bytes that were read of it so far.
pub(crate) struct Streamed {
    stream: std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>,
    left: u64,
    idle: Duration,
}

impl Streamed {
    pub(crate) fn new(body: Body, limit_bytes: u64, idle: Duration) -> Self {
        Self {
            stream: Box::pin(body.into_data_stream()),
            left: limit_bytes,
            idle,
        }
    }

    /// The next piece, `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Refused> {
        let next = tokio::time::timeout(self.idle, self.stream.next());
        match next.await.map_err(|_| too_slow())? {
            None => Ok(None),
            Some(Err(_)) => Err(Refused::new(
                StatusCode::BAD_REQUEST,
                "the request broke off",
            )),
            Some(Ok(piece)) => {
                self.left = self.left.checked_sub(piece.len() as u64).ok_or_else(|| {
                    Refused::new(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "the request is larger than this gateway takes",
                    )
                })?;
                Ok(Some(piece))
            }
        }
    }
}
