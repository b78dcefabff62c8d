//! Paths that stay below the upstream's base path, and queries without credentials.

use percent_encoding::percent_decode_str;

/// The longest path with its query that is sent on.
const MAX_PATH: usize = 8 * 1_024;

/// Splits `/model/<upstream>/<rest>` into the name and the rest, which keeps its leading slash.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let below = path.strip_prefix("/model/")?;
    let (name, rest) = match below.find('/') {
        Some(at) => below.split_at(at),
        None => (below, ""),
    };
    (!name.is_empty()).then_some((name, rest))
}

/// Joins the base path and the rest. None where a segment could be read as a step upwards or as several
/// segments, by this server or by one that decodes once more. Empty segments vanish.
pub(super) fn join(base: &str, rest: &str) -> Option<String> {
    let mut joined = base.trim_end_matches('/').to_owned();
    for segment in rest.split('/').filter(|segment| !segment.is_empty()) {
        if !is_plain(segment) {
            return None;
        }
        joined.push('/');
        joined.push_str(segment);
    }
    if rest.ends_with('/') || joined.is_empty() {
        joined.push('/');
    }
    (joined.len() <= MAX_PATH).then_some(joined)
}

fn is_plain(segment: &str) -> bool {
    let mut text = segment.to_owned();
    // Twice: some servers decode what they were given decoded.
    for _ in 0..2 {
        if !is_one_segment(&text) {
            return false;
        }
        match percent_decode_str(&text).decode_utf8() {
            Ok(decoded) => text = decoded.into_owned(),
            Err(_) => return false,
        }
    }
    is_one_segment(&text)
}

fn is_one_segment(text: &str) -> bool {
    // Some servers cut parameters off a segment before they look at its dots.
    let bare = text.split(';').next().unwrap_or_default();
    !matches!(bare, "." | "..")
        && !text
            .chars()
            .any(|c| matches!(c, '/' | '\\') || c.is_control())
}

/// Parts a query into what is sent on and the tokens found in it: the values of `key`.
pub(super) fn part_query(query: &str) -> (String, Vec<String>) {
    let mut kept = Vec::new();
    let mut tokens = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match percent_decode_str(name).decode_utf8_lossy().as_ref() {
            "key" => tokens.push(percent_decode_str(value).decode_utf8_lossy().into_owned()),
            _ => kept.push(pair),
        }
    }
    (kept.join("&"), tokens)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_split_and_joined() {
        assert_eq!(
            split("/model/openai/v1/responses"),
            Some(("openai", "/v1/responses"))
        );
        assert_eq!(split("/model/openai"), Some(("openai", "")));
        assert_eq!(split("/model//x"), None);
        assert_eq!(split("/git/repo.git"), None);
        for (base, rest, joined) in [
            ("/", "/v1/messages", "/v1/messages"),
            ("/api/", "//v1//messages/", "/api/v1/messages/"),
            ("", "", "/"),
            ("/api", "", "/api"),
            (
                "/",
                "/v1beta/models/gemini-2.5-pro:generateContent",
                "/v1beta/models/gemini-2.5-pro:generateContent",
            ),
            ("/", "/v1/files/a%20b", "/v1/files/a%20b"),
            ("/", "/v1/..x/.well-known/...", "/v1/..x/.well-known/..."),
        ] {
            assert_eq!(join(base, rest).as_deref(), Some(joined), "{base} {rest}");
        }
    }

    #[test]
    fn no_path_leaves_the_base() {
        for rest in [
            "/..",
            "/../x",
            "/v1/../../x",
            "/.",
            "/%2e%2e/x",
            "/.%2E/x",
            "/%252e%252e/x",
            "/v1/..%2fx",
            "/v1%2f..%2fx",
            "/v1%5c..%5cx",
            "/v1\\..\\x",
            "/..;/x",
            "/..;a=b/x",
            "/%2e%2e%3bx/y",
            "/a%00b",
            "/a%0d%0ab",
            "/%ff",
        ] {
            assert_eq!(join("/api", rest), None, "{rest}");
        }
        assert_eq!(join("/api", &format!("/{}", "a".repeat(MAX_PATH))), None);
    }

    #[test]
    fn a_key_in_the_query_is_taken_out() {
        let (kept, tokens) = part_query("alt=sse&key=t%6fken&k%65y=two&keys=3&x");
        assert_eq!(kept, "alt=sse&keys=3&x");
        assert_eq!(tokens, ["token", "two"]);
    }

    proptest! {
        /// Whatever was asked for, the result lies below the base and has no dots to step on.
        #[test]
        fn any_path_stays_below_the_base(rest in "(/|\\.|%2e|%2E|%252e|%2f|;|a|\\\\|%5c|%){0,12}") {
            if let Some(joined) = join("/api/v1", &rest) {
                let below = joined.strip_prefix("/api/v1").unwrap();
                prop_assert!(below.is_empty() || below.starts_with('/'));
                let mut decoded = joined.clone();
                for _ in 0..3 {
                    prop_assert!(decoded.split('/').all(|s| s != ".." && s != "."), "{}", decoded);
                    decoded = percent_decode_str(&decoded).decode_utf8_lossy().into_owned();
                }
            }
        }
    }
}
