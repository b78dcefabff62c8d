//! What every request passes before it reaches a handler.

use std::time::Duration;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderName, HeaderValue, header, uri::Authority};
use uuid::Uuid;

use super::respond;
use crate::{Code, ControlPlane, Problem};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How long a request may take, live streams aside.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Gives each request an id, which its answer and its problem carry.
pub(super) async fn request_id(request: Request, next: Next) -> Response {
    let id = Uuid::now_v7().to_string();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    let status = response.status();
    tracing::debug!(%id, %method, path, %status, "answered a request");
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        if status.is_server_error() {
            tracing::error!(%id, %method, path, %problem, "a request failed");
        }
        response = respond::respond(&problem.request_id(&id));
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// A page of another origin can point its own name at this address; the name in `Host` gives it away.
pub(super) async fn host(
    State(plane): State<ControlPlane>,
    request: Request,
    next: Next,
) -> Response {
    let header = request
        .headers()
        .get(header::HOST)
        .and_then(|value| value.to_str().ok());
    let named = header.or_else(|| request.uri().authority().map(Authority::as_str));
    let host = named
        .and_then(|text| text.parse::<Authority>().ok())
        .map(|authority| authority.host().to_ascii_lowercase());
    match host {
        Some(host) if is_ours(&host, plane.allowed_hosts()) => next.run(request).await,
        other => Problem::new(
            Code::Forbidden,
            format!(
                "this server does not answer to the name {:?}",
                other.unwrap_or_default()
            ),
        )
        .remedy("use its address, or add the name to the server's configuration")
        .into_response(),
    }
}

/// Loopback by any of its names, any literal address (which no rebinding can fake), or a configured name.
fn is_ours(host: &str, allowed: &[String]) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || bare.parse::<std::net::IpAddr>().is_ok()
        || allowed.iter().any(|name| name.eq_ignore_ascii_case(host))
}

/// Ends a request that takes too long to answer. A live stream has answered when it begins.
pub(super) async fn time_limit(request: Request, next: Next) -> Response {
    match tokio::time::timeout(TIME_LIMIT, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => Problem::new(
            Code::TimedOut,
            format!("the request took more than {} s", TIME_LIMIT.as_secs()),
        )
        .into_response(),
    }
}
