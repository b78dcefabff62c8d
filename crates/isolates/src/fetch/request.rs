//! The arguments of `host.fetch` become a request. They are bytes that were read once: nothing that the plugin does
//! afterwards changes what was checked (S12).

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::headers;
use crate::call_error::CallError;

const URL_BYTES_MAX: usize = 8 << 10;
const BODY_BYTES_MAX: usize = 5 << 20;
/// The kind of invocation has a limit of its own besides.
const TIMEOUT_MS_MAX: u64 = 15_000;
const METHOD_CHARS_MAX: usize = 20;
const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, deflate, br, zstd");
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("bulkhead-plugin/", env!("CARGO_PKG_VERSION")));
const TEXT: HeaderValue = HeaderValue::from_static("text/plain;charset=UTF-8");
/// `host.fetch(url, init)` and `host.fetch({ url, … })`.
const FORM: &str = "expected `host.fetch(url, { method, headers, body, … })`";

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) url: Url,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) response_encoding: Encoding,
    pub(super) on_redirect: OnRedirect,
    pub(super) timeout: Option<Duration>,
}

/// How bytes are written in a JavaScript string.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) enum Encoding {
    #[default]
    #[serde(rename = "utf8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnRedirect {
    #[default]
    Follow,
    /// The redirect is the answer.
    Manual,
    /// A redirect is a failure.
    Error,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Init {
    url: Option<String>,
    method: Option<String>,
    headers: Option<Headers>,
    body: Option<String>,
    body_encoding: Option<Encoding>,
    response_encoding: Option<Encoding>,
    redirect: Option<OnRedirect>,
    timeout_ms: Option<u64>,
}

/// An object, or a list of pairs where one name comes several times.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected an object of texts, or a list of [name, value]"
)]
enum Headers {
    Object(serde_json::Map<String, Value>),
    Pairs(Vec<(String, String)>),
}

impl Request {
    pub(super) fn read(arguments: &str) -> Result<Self, CallError> {
        let (url, init) = read_arguments(arguments)?;
        let url = read_url(&url)?;
        let method = read_method(init.method.as_deref())?;
        let has_body = init.body.is_some();
        if has_body && matches!(method, Method::GET | Method::HEAD) {
            let message =
                format!("host.fetch: {method} has no `body`; leave it out or use another `method`");
            return Err(CallError::bad_request(message));
        }
        let body_encoding = init.body_encoding.unwrap_or_default();
        let body = read_body(init.body.unwrap_or_default(), body_encoding)?;
        let mut headers = headers::read(&read_headers(init.headers)?)?;
        headers.insert(header::ACCEPT_ENCODING, ACCEPTED);
        let mut default = |name: HeaderName, value| {
            headers.entry(name).or_insert(value);
        };
        default(header::USER_AGENT, USER_AGENT);
        default(header::ACCEPT, HeaderValue::from_static("*/*"));
        if has_body && body_encoding == Encoding::Utf8 {
            default(header::CONTENT_TYPE, TEXT);
        }
        Ok(Self {
            url,
            method,
            headers,
            body,
            response_encoding: init.response_encoding.unwrap_or_default(),
            on_redirect: init.redirect.unwrap_or_default(),
            timeout: read_timeout(init.timeout_ms)?,
        })
    }

    /// As the Fetch standard does (section 4.4, HTTP-redirect fetch), but stricter with headers.
    pub(super) fn redirect_to(&mut self, url: Url, status: StatusCode, is_other_origin: bool) {
        self.url = url;
        let becomes_get = match status {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::POST,
            StatusCode::SEE_OTHER => !matches!(self.method, Method::GET | Method::HEAD),
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body = Bytes::new();
            let of_body = |name: &&HeaderName| name.as_str().starts_with("content-");
            let names: Vec<_> = self.headers.keys().filter(of_body).cloned().collect();
            for name in names {
                self.headers.remove(name);
            }
        }
        if is_other_origin {
            headers::for_another_origin(&mut self.headers);
            self.headers.insert(header::ACCEPT_ENCODING, ACCEPTED);
        }
    }
}

fn read_arguments(arguments: &str) -> Result<(String, Init), CallError> {
    let wrong = |what: String| CallError::bad_request(format!("host.fetch: {what}"));
    let given: Vec<Value> = serde_json::from_str(arguments)
        .map_err(|error| wrong(format!("the arguments are no JSON: {error}")))?;
    let mut given = given.into_iter();
    let (first, second) = (given.next(), given.next());
    if given.next().is_some() {
        return Err(wrong(format!("too many arguments; {FORM}")));
    }
    let init = |value: Value| Init::deserialize(value).map_err(|error| wrong(error.to_string()));
    match (first, second) {
        (Some(Value::String(url)), None | Some(Value::Null)) => Ok((url, Init::default())),
        (Some(Value::String(url)), Some(value @ Value::Object(_))) => match init(value)? {
            Init { url: Some(_), .. } => Err(wrong(format!("the URL is given twice; {FORM}"))),
            init => Ok((url, init)),
        },
        (Some(value @ Value::Object(_)), None | Some(Value::Null)) => match init(value)? {
            Init { url: None, .. } => Err(wrong(format!("`url` is missing; {FORM}"))),
            mut init => Ok((init.url.take().unwrap_or_default(), init)),
        },
        _ => Err(wrong(FORM.to_owned())),
    }
}

fn read_url(text: &str) -> Result<Url, CallError> {
    if text.len() > URL_BYTES_MAX {
        let message = format!(
            "host.fetch: `url` has {} bytes; at most {URL_BYTES_MAX} are sent",
            text.len()
        );
        return Err(CallError::bad_request(message));
    }
    let mut url = Url::parse(text).map_err(|error| {
        CallError::bad_request(format!("host.fetch: `url` is no absolute URL: {error}"))
    })?;
    url.set_fragment(None);
    Ok(url)
}

fn read_method(text: Option<&str>) -> Result<Method, CallError> {
    let text = text.unwrap_or("GET");
    let usual = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let usual = usual
        .into_iter()
        .find(|usual| usual.eq_ignore_ascii_case(text));
    let text = usual.unwrap_or(text);
    let is_word = !text.is_empty()
        && text.len() <= METHOD_CHARS_MAX
        && text.bytes().all(|b| b.is_ascii_uppercase());
    let is_refused = matches!(text, "CONNECT" | "TRACE" | "TRACK");
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if is_word && !is_refused => Ok(method),
        _ => {
            let shown = text.chars().take(40).collect::<String>();
            let message = format!(
                "host.fetch: `method` {shown:?} is none that can be sent; expected GET, POST, …"
            );
            Err(CallError::bad_request(message))
        }
    }
}

fn read_body(text: String, encoding: Encoding) -> Result<Bytes, CallError> {
    let bytes = match encoding {
        Encoding::Utf8 => text.into_bytes(),
        Encoding::Base64 => STANDARD.decode(text).map_err(|error| {
            CallError::bad_request(format!(
                "host.fetch: `body` is no base64 (with padding, RFC 4648): {error}"
            ))
        })?,
    };
    if bytes.len() > BODY_BYTES_MAX {
        let message = format!(
            "host.fetch: `body` has {} bytes; at most {BODY_BYTES_MAX} are sent",
            bytes.len()
        );
        return Err(CallError::bad_request(message));
    }
    Ok(bytes.into())
}

fn read_headers(headers: Option<Headers>) -> Result<Vec<(String, String)>, CallError> {
    match headers {
        None => Ok(Vec::new()),
        Some(Headers::Pairs(pairs)) => Ok(pairs),
        Some(Headers::Object(object)) => object
            .into_iter()
            .map(|(name, value)| match value {
                Value::String(value) => Ok((name, value)),
                _ => {
                    let name = name.escape_debug();
                    let message =
                        format!("host.fetch: the value of the header `{name}` is no text");
                    Err(CallError::bad_request(message))
                }
            })
            .collect(),
    }
}

fn read_timeout(timeout_ms: Option<u64>) -> Result<Option<Duration>, CallError> {
    match timeout_ms {
        Some(ms) if !(1..=TIMEOUT_MS_MAX).contains(&ms) => {
            let message =
                format!("host.fetch: `timeoutMs` is {ms}; expected 1 to {TIMEOUT_MS_MAX}");
            Err(CallError::bad_request(message))
        }
        ms => Ok(ms.map(Duration::from_millis)),
    }
}
