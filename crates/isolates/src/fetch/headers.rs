//! The headers that a plugin may set (HT1, HT3, HT4).

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::call_error::CallError;

const HEADERS_MAX: usize = 100;
const HEADERS_BYTES_MAX: usize = 32 << 10;

/// How a message is framed, which connection it takes, and how it is encoded is the service's business.
const OURS: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What goes along to another origin on a redirect. Everything else may be a credential.
const TRAVELS: &[&str] = &[
    "accept",
    "accept-language",
    "cache-control",
    "content-language",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    "user-agent",
];

/// Reads headers in the order in which they were given. One name may come several times.
pub(super) fn read(given: &[(String, String)]) -> Result<HeaderMap, CallError> {
    if given.len() > HEADERS_MAX {
        let found = given.len();
        let message =
            format!("host.fetch: `headers` has {found} entries; at most {HEADERS_MAX} are sent");
        return Err(CallError::bad_request(message));
    }
    let bytes: usize = given
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > HEADERS_BYTES_MAX {
        let message = format!(
            "host.fetch: `headers` has {bytes} bytes; at most {HEADERS_BYTES_MAX} are sent"
        );
        return Err(CallError::bad_request(message));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let (name, value) = (read_name(name)?, read_value(name, value)?);
        headers.append(name, value);
    }
    Ok(headers)
}

fn read_name(text: &str) -> Result<HeaderName, CallError> {
    let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
        let shown = text.escape_debug().to_string();
        let message = format!(
            "host.fetch: \"{shown}\" is no name of a header; expected letters, digits and `-`"
        );
        return Err(CallError::bad_request(message));
    };
    if OURS.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
        let message =
            format!("host.fetch: the header `{name}` is set by the service alone; leave it out");
        return Err(CallError::bad_request(message));
    }
    Ok(name)
}

/// Visible ASCII, with spaces and tabs between. The value itself is never repeated: it may be a secret.
fn read_value(name: &str, text: &str) -> Result<HeaderValue, CallError> {
    let is_blank = |c: char| c == ' ' || c == '\t';
    let is_good = |c: char| is_blank(c) || c.is_ascii_graphic();
    let what = match text {
        _ if text.contains(['\r', '\n', '\0']) => "has a line break or NUL in it",
        _ if text.starts_with(is_blank) || text.ends_with(is_blank) => {
            "begins or ends with a space"
        }
        _ if !text.chars().all(is_good) => {
            "has characters beyond visible ASCII; encode them as the server expects"
        }
        _ => match HeaderValue::from_str(text) {
            Ok(value) => return Ok(value),
            Err(_) => "is no value of a header",
        },
    };
    let name = name.escape_debug();
    Err(CallError::bad_request(format!(
        "host.fetch: the value of the header `{name}` {what}"
    )))
}

/// Leaves only what another origin may see.
pub(super) fn for_another_origin(headers: &mut HeaderMap) {
    let kept = TRAVELS.iter().filter_map(|name| {
        let name = HeaderName::from_static(name);
        let values: Vec<_> = headers.get_all(&name).iter().cloned().collect();
        (!values.is_empty()).then_some((name, values))
    });
    let kept: Vec<_> = kept.collect();
    headers.clear();
    for (name, values) in kept {
        for value in values {
            headers.append(name.clone(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;
    use crate::call_error::Code;

    fn one(name: &str, value: &str) -> Result<HeaderMap, CallError> {
        read(&[(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn ht1_what_would_break_a_line_or_a_name_is_refused() {
        let values = [
            "a\r\nX: b",
            "a\n b",
            "a\rb",
            "a\0b",
            " a",
            "a ",
            "\ta",
            "a\t",
            "ä",
            "a\u{7f}",
            "a\u{1}",
        ];
        for value in values {
            let error = one("x-test", value).unwrap_err();
            assert_eq!(error.code, Code::BadRequest, "{value:?}");
            assert!(error.message.contains("x-test"), "{error}");
        }
        for name in [
            "a b", "a:", ":path", "", "a\r\nb", "ä", "a\0", " a", "a\t", "(", "a/b", "a=b",
        ] {
            let error = one(name, "v").unwrap_err();
            assert_eq!(error.code, Code::BadRequest, "{name:?}");
        }
        one("x-test", "a b\tc").unwrap();
        one("X-Test", "").unwrap();
    }

    #[test]
    fn ht3_ht4_the_services_own_headers_are_refused() {
        let names = [
            "Transfer-Encoding",
            "transfer-encoding",
            "Content-Length",
            "Connection",
            "Upgrade",
            "TE",
            "Trailer",
            "Proxy-Authorization",
            "Proxy-Connection",
            "proxy-anything",
            "Expect",
            "Keep-Alive",
            "Accept-Encoding",
            "Host",
            "HTTP2-Settings",
        ];
        for name in names {
            let error = one(name, "5").unwrap_err();
            assert_eq!(error.code, Code::BadRequest, "{name}");
        }
        // A name with a tab in it is no name (`chunked\t` as a value is one, and its header is refused).
        one("transfer-encoding\t", "chunked").unwrap_err();
        one("transfer-encoding", "chunked\t").unwrap_err();
    }

    #[test]
    fn ht9_there_is_a_most_of_headers() {
        let many: Vec<_> = (0..101)
            .map(|n| (format!("x-{n}"), "v".to_owned()))
            .collect();
        read(&many).unwrap_err();
        read(&many[..100]).unwrap();
        one("x-long", &"v".repeat(HEADERS_BYTES_MAX)).unwrap_err();
    }

    #[test]
    fn n21_nothing_that_may_be_a_credential_goes_to_another_origin() {
        let given = [
            ("authorization", "secret"),
            ("cookie", "s=1"),
            ("x-api-key", "k"),
            ("accept", "a"),
            ("accept", "b"),
        ];
        let given: Vec<_> = given
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        let mut headers = read(&given).unwrap();
        for_another_origin(&mut headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["accept"]);
        assert_eq!(headers.get_all("accept").iter().count(), 2);
    }
}
