//! The HTTP API: `/healthz` and `/readyz` for anyone, `/api/v1` for callers with a token.
//!
//! A request passes, from outside in: request id, `Host` check (against DNS rebinding), body limit, time limit,
//! token, scope. There is no CORS: no page of another origin may read anything here. A phase's token is of another
//! kind, lives in another table, and is refused here by name (case 62).

mod auth;
mod extract;
mod guard;
mod health;
mod live;
mod phases;
mod respond;
mod runs;
mod secrets;
mod tokens;

use axum::{Router, middleware};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::auth::BearerToken;
use crate::ControlPlane;

/// The largest body of a request.
const BODY_BYTES: usize = 2 << 20;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Bulkhead",
        description = "Runs, phases and gates of a Bulkhead control plane. Every error is an RFC 9457 problem.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    modifiers(&BearerToken),
    security(("token" = []))
)]
struct Document;

fn documented() -> OpenApiRouter<ControlPlane> {
    let api = OpenApiRouter::new()
        .routes(routes!(runs::list, runs::create))
        .routes(routes!(runs::show))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::pause))
        .routes(routes!(runs::resume))
        .routes(routes!(runs::stop_all))
        .routes(routes!(runs::diff))
        .routes(routes!(runs::land))
        .routes(routes!(runs::gate))
        .routes(routes!(runs::decide))
        .routes(routes!(live::watch))
        .routes(routes!(live::events))
        .routes(routes!(live::log))
        .routes(routes!(phases::events))
        .routes(routes!(phases::log))
        .routes(routes!(phases::artifacts))
        .routes(routes!(phases::artifact))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::set, secrets::remove))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(health::isolation));
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .nest("/api/v1", api)
}

/// The whole API as a router.
pub(crate) fn router(plane: ControlPlane) -> Router {
    let (router, _) = documented().split_for_parts();
    router
        .fallback(respond::not_found)
        .layer(middleware::from_fn(guard::time_limit))
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn_with_state(plane.clone(), guard::host))
        .layer(middleware::from_fn(guard::request_id))
        .with_state(plane)
}

/// The API's OpenAPI 3.1 document, as committed at `docs/openapi.json`.
pub fn openapi() -> String {
    let (_, mut document) = documented().split_for_parts();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}
