//! Whether the server lives, whether it can work, and what it can isolate.

use axum::{Json, extract::State, http::StatusCode};

use super::auth::{Allowed, ToRead};
use crate::{ControlPlane, Problem, ProblemBody};

/// The process answers.
#[utoipa::path(
    get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "The process answers", body = String))
)]
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// The store answers, and new work is taken.
#[utoipa::path(
    get, path = "/readyz", tag = "health", security(()),
    responses(
        (status = 200, description = "Ready for work", body = String),
        (status = 503, description = "Not ready, with the reason", body = String),
    )
)]
pub(super) async fn ready(State(plane): State<ControlPlane>) -> (StatusCode, String) {
    match plane.ready().await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// What this server's machine can isolate, and the remedy for what it cannot.
#[utoipa::path(
    get, path = "/isolation", tag = "health",
    responses(
        (status = 200, description = "The report of `bulkhead doctor`", body = Object),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn isolation(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
) -> Result<Json<serde_json::Value>, Problem> {
    Ok(Json(plane.isolation().await))
}
