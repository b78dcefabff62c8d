//! From the sandbox's request to the upstream's: the phase token out, the credential in.

use futures::future::BoxFuture;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri, Version,
    header::{ACCEPT_ENCODING, AUTHORIZATION, COOKIE, FORWARDED, HOST, ORIGIN, REFERER, VIA},
    request::Parts,
};

use super::{error::Problem, path, upstream::ModelUpstream};
use crate::headers;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Knows the tokens of the phases that run. Comparing in constant time is the implementor's matter
/// (comparing hashes, say).
pub trait TokenCheck: Send + Sync + 'static {
    /// Whether this token may use this upstream now.
    fn check<'a>(
        &'a self,
        token: &'a str,
        upstream: &'a str,
    ) -> BoxFuture<'a, Result<(), TokenRefusal>>;
}

/// Why a token does not open an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    #[error("no running phase has this token")]
    Unknown,
    #[error("this phase may not use this upstream")]
    NotForThisUpstream,
}

/// Where a request goes, and what came with it that must not go along.
pub(super) struct Asked {
    pub(super) rest: String,
    pub(super) query: String,
    /// What stands where clients put API keys, each once.
    pub(super) tokens: Vec<String>,
}

impl Asked {
    /// Reads the path's rest, the query and every place in which a token can stand.
    pub(super) fn read(parts: &Parts, rest: &str) -> Self {
        let (query, mut tokens) = path::part_query(parts.uri.query().unwrap_or_default());
        let text = |value: &HeaderValue| value.to_str().ok().map(str::trim).map(ToOwned::to_owned);
        tokens.extend(parts.headers.get_all(X_API_KEY).iter().filter_map(text));
        tokens.extend(
            parts
                .headers
                .get_all(X_GOOG_API_KEY)
                .iter()
                .filter_map(text),
        );
        let authorizations = parts.headers.get_all(AUTHORIZATION).iter().filter_map(text);
        tokens.extend(authorizations.filter_map(|value| bearer(&value)));
        tokens.retain(|token| !token.is_empty());
        tokens.sort_unstable();
        tokens.dedup();
        Self {
            rest: rest.to_owned(),
            query,
            tokens,
        }
    }
}

fn bearer(value: &str) -> Option<String> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}

/// Methods that model APIs have. TRACE, which would repeat the credential, is not one.
pub(super) fn check_method(method: &Method) -> Result<(), Problem> {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
    ];
    match known.contains(method) {
        true => Ok(()),
        false => Err(Problem::Method),
    }
}

/// Writes the request anew for its upstream.
pub(super) fn rewrite(
    parts: &mut Parts,
    asked: &Asked,
    upstream: &ModelUpstream,
) -> Result<(), Problem> {
    parts.uri = upstream_uri(asked, upstream)?;
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    let fields = &mut parts.headers;
    headers::end_hop(fields);
    strip(fields, &asked.tokens);
    // What is compressed cannot be searched for the credential.
    fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    upstream.authorize(fields).ok_or(Problem::Unsendable)
}

/// Takes out credentials and all that tells about the sandbox's side, and the token wherever else it is.
fn strip(fields: &mut HeaderMap, tokens: &[String]) {
    for name in [
        X_API_KEY,
        X_GOOG_API_KEY,
        AUTHORIZATION,
        COOKIE,
        FORWARDED,
        HOST,
        ORIGIN,
        REFERER,
        VIA,
    ] {
        fields.remove(name);
    }
    let has_token = |value: &HeaderValue| {
        let text = String::from_utf8_lossy(value.as_bytes());
        tokens.iter().any(|token| text.contains(token.as_str()))
    };
    let doomed: Vec<_> = fields
        .iter()
        .filter(|(name, value)| name.as_str().starts_with("x-forwarded") || has_token(value))
        .map(|(name, _)| name.clone())
        .collect();
    for name in doomed {
        fields.remove(name);
    }
}

fn upstream_uri(asked: &Asked, upstream: &ModelUpstream) -> Result<Uri, Problem> {
    let base = &upstream.base_url;
    let mut target = path::join(base.path(), &asked.rest).ok_or(Problem::Path)?;
    let is_token_free = |pair: &&str| {
        !asked
            .tokens
            .iter()
            .any(|token| pair.contains(token.as_str()))
    };
    let query: Vec<_> = asked.query.split('&').filter(is_token_free).collect();
    if !asked.query.is_empty() && !query.is_empty() {
        target.push('?');
        target.push_str(&query.join("&"));
    }
    let host = base.host_str().ok_or(Problem::Path)?;
    let authority = match base.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    Uri::builder()
        .scheme(base.scheme())
        .authority(authority)
        .path_and_query(target)
        .build()
        .map_err(|_| Problem::Unsendable)
}
