//! What a plugin sees of a response: an object, and its body apart, because it may be large.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bulkhead_wire::pipe;
use http::{HeaderMap, HeaderName, header};
use serde_json::{Map, Value, json};
use url::Url;

use super::{exchange::Head, request::Encoding};
use crate::call_error::{CallError, Code};

/// They speak of the connection, or of a form that the body has no longer.
const LEFT_OUT: &[HeaderName] = &[
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TRAILER,
    header::UPGRADE,
    header::SET_COOKIE,
];

pub(super) struct Received<'a> {
    pub(super) url: &'a Url,
    pub(super) redirected: bool,
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

impl Received<'_> {
    pub(super) fn into_value(self, encoding: Encoding) -> Result<pipe::Value, CallError> {
        let Head {
            status,
            reason,
            headers,
        } = self.head;
        let cookies = headers.get_all(header::SET_COOKIE).iter();
        let cookies: Vec<_> = cookies
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        let value = json!({
            "status": status.as_u16(),
            "statusText": reason,
            "ok": status.is_success(),
            "url": self.url.as_str(),
            "redirected": self.redirected,
            "headers": joined(&headers),
            "setCookie": cookies,
            "bodyEncoding": match encoding {
                Encoding::Utf8 => "utf8",
                Encoding::Base64 => "base64",
            },
        });
        let json = serde_json::to_string(&value).map_err(|error| {
            CallError::new(Code::Failed, format!("host.fetch: the response: {error}"))
        })?;
        let body = match encoding {
            Encoding::Utf8 => text(self.body),
            Encoding::Base64 => STANDARD.encode(&self.body),
        };
        Ok(pipe::Value {
            json,
            body: Some(body),
        })
    }
}

/// Always UTF-8, whatever the content type says of a charset: a mark at the beginning (BOM) is taken off, and what is
/// no UTF-8 becomes U+FFFD, as the Encoding standard's "UTF-8 decode" does. Whoever needs other bytes asks for base64.
pub(super) fn text(body: Vec<u8>) -> String {
    let body = match body.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => rest.to_vec(),
        None => body,
    };
    String::from_utf8(body)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// By lower-case name; what came several times is joined by ", " (RFC 9110, section 5.3).
fn joined(headers: &HeaderMap) -> Map<String, Value> {
    let mut joined = Map::new();
    for name in headers.keys().filter(|name| !LEFT_OUT.contains(name)) {
        let values = headers.get_all(name).iter();
        let values: Vec<_> = values
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        joined.insert(name.to_string(), values.join(", ").into());
    }
    let is_encoded = joined.contains_key("content-encoding");
    if is_encoded {
        // The body that the plugin gets is not the one that they describe.
        joined.remove("content-length");
    }
    joined
}
