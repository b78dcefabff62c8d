//! One request and its response on a connection of their own.

use bulkhead_egress::{Link, Scheme, Target};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use url::Position;

use super::{body::Decoding, chain, request::Request};
use crate::call_error::{CallError, Code};

/// Of a response. What has more is an error (HT9).
const HEADERS_MAX: usize = 200;
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A response whose body has not been read yet.
pub(super) struct Exchange {
    head: Head,
    method: Method,
    incoming: Incoming,
    target: String,
    /// Moves the bytes; it ends with this value.
    _connection: JoinSet<()>,
}

#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) reason: String,
    pub(super) headers: HeaderMap,
}

impl Exchange {
    /// Sends the request and waits for the head of the response.
    pub(super) async fn new(
        link: Link,
        request: &Request,
        target: &Target,
    ) -> Result<Self, CallError> {
        let failed = |error: hyper::Error| {
            let message = format!("host.fetch of {target}: {}", chain(&error));
            CallError::new(Code::Failed, message)
        };
        let mut builder = http1::Builder::new();
        builder
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) = builder
            .handshake(TokioIo::new(link))
            .await
            .map_err(failed)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // Its error is the response's too.
            let _ = connection.await;
        });
        let response = sender
            .send_request(to_http(request, target)?)
            .await
            .map_err(failed)?;
        let (parts, incoming) = response.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let message =
                format!("host.fetch of {target}: it changed to a protocol that nobody asked for");
            return Err(CallError::new(Code::Failed, message));
        }
        let reason = parts.extensions.get::<hyper::ext::ReasonPhrase>();
        let reason = reason.map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
        Ok(Self {
            head: Head {
                status: parts.status,
                reason: reason.unwrap_or_else(|| {
                    parts
                        .status
                        .canonical_reason()
                        .unwrap_or_default()
                        .to_owned()
                }),
                headers: parts.headers,
            },
            method: request.method.clone(),
            incoming,
            target: target.to_string(),
            _connection: tasks,
        })
    }

    pub(super) fn head(&self) -> Head {
        self.head.clone()
    }

    pub(super) const fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Where a redirect leads.
    pub(super) fn location(&self) -> Option<Vec<u8>> {
        let location = self.head.headers.get(header::LOCATION)?;
        matches!(self.head.status.as_u16(), 301 | 302 | 303 | 307 | 308)
            .then(|| location.as_bytes().to_vec())
    }

    /// Reads the body to its end, decompressed; at most so many bytes.
    pub(super) async fn body(mut self, bytes_max: usize) -> Result<Vec<u8>, CallError> {
        let has_body =
            self.method != Method::HEAD && !matches!(self.head.status.as_u16(), 204 | 205 | 304);
        let announced = self.head.headers.get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if has_body && announced.is_some_and(|length| length > bytes_max as u64) {
            return Err(too_large(&self.target, bytes_max));
        }
        let mut decoding = Decoding::new(&self.head.headers, bytes_max)
            .map_err(|e| e.into_call_error(&self.target))?;
        while let Some(frame) = self.incoming.frame().await {
            let frame = frame.map_err(|error| {
                let message = format!("host.fetch of {}: the body: {}", self.target, chain(&error));
                CallError::new(Code::Failed, message)
            })?;
            if let Some(bytes) = frame.data_ref() {
                decoding
                    .push(bytes)
                    .map_err(|e| e.into_call_error(&self.target))?;
            }
        }
        decoding
            .finish()
            .map_err(|e| e.into_call_error(&self.target))
    }
}

pub(super) fn too_large(target: &str, bytes_max: usize) -> CallError {
    let message = format!(
        "host.fetch of {target}: the body has more than {bytes_max} bytes decompressed; ask for less at a time"
    );
    CallError::new(Code::Limit, message)
}

fn to_http(request: &Request, target: &Target) -> Result<http::Request<Full<Bytes>>, CallError> {
    let unsendable = |error: http::Error| {
        CallError::bad_request(format!(
            "host.fetch of {target}: the request cannot be sent: {error}"
        ))
    };
    let path = &request.url[Position::BeforePath..Position::AfterQuery];
    let mut http = http::Request::builder()
        .method(request.method.clone())
        .uri(path)
        .body(Full::new(request.body.clone()))
        .map_err(unsendable)?;
    // The host of the decision, not of the text: one string for the rule, for TLS and for the server (N3).
    let is_usual = matches!(
        (target.scheme(), target.port()),
        (Scheme::Http, 80) | (Scheme::Https, 443)
    );
    let host = match is_usual {
        true => target.host().to_string(),
        false => target.to_string(),
    };
    let host = HeaderValue::from_str(&host).map_err(|error| unsendable(error.into()))?;
    *http.headers_mut() = request.headers.clone();
    http.headers_mut().insert(header::HOST, host);
    Ok(http)
}
