//! Callers' tokens: made, listed, revoked. A token is shown once, in the answer that makes it.

use axum::{Json, extract::State, http::StatusCode};
use bulkhead_model::gate::Scope;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    auth::{Allowed, ToAdminister},
    extract::{Body, Parsed},
};
use crate::{Code, ControlPlane, Problem, ProblemBody, TokenView};

/// A token to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    /// Decisions and cancels carry it; gates list it among their approvers.
    name: String,
    /// `read`, `run`, `decide`, `admin`.
    scopes: Vec<String>,
    expires_at_ms: Option<i64>,
}

/// All tokens, without the tokens themselves.
#[utoipa::path(
    get, path = "/tokens", tag = "tokens", operation_id = "list_tokens",
    responses(
        (status = 200, body = Vec<TokenView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(plane): State<ControlPlane>,
    _: Allowed<ToAdminister>,
) -> Result<Json<Vec<TokenView>>, Problem> {
    plane.tokens().await.map(Json)
}

/// Make a token.
#[utoipa::path(
    post, path = "/tokens", tag = "tokens", operation_id = "create_token", request_body = NewToken,
    responses(
        (status = 201, body = TokenView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToAdminister>,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<TokenView>), Problem> {
    let scopes = new
        .scopes
        .iter()
        .map(|name| scope(name))
        .collect::<Result<Vec<_>, _>>()?;
    let made = plane
        .create_token(&caller, &new.name, &scopes, new.expires_at_ms)
        .await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Revoke a token; it stops working at once.
#[utoipa::path(
    delete, path = "/tokens/{id}", tag = "tokens", operation_id = "revoke_token",
    params(("id" = String, Path, description = "The token's id")),
    responses(
        (status = 204, description = "It is revoked"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn revoke(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToAdminister>,
    Parsed(id): Parsed<String>,
) -> Result<StatusCode, Problem> {
    plane.revoke_token(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn scope(name: &str) -> Result<Scope, Problem> {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).map_err(|_| {
        Problem::new(Code::InvalidInput, format!("{name:?} is not a scope"))
            .field("scopes")
            .remedy("use some of read, run, decide, admin")
    })
}
