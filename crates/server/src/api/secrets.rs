//! Secrets: set, listed by name, removed; never read back (R17).

use axum::{Json, extract::State, http::StatusCode};
use bulkhead_model::SecretName;
use secrecy::SecretString;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    auth::{Allowed, ToAdminister, ToRead},
    extract::{Body, Parsed},
};
use crate::{ControlPlane, Problem, ProblemBody, SecretView};

/// The new value of a secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretValue {
    #[schema(value_type = String, write_only)]
    value: SecretString,
}

/// The secrets by name.
#[utoipa::path(
    get, path = "/secrets", tag = "secrets", operation_id = "list_secrets",
    responses(
        (status = 200, body = Vec<SecretView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
) -> Result<Json<Vec<SecretView>>, Problem> {
    plane.secrets().await.map(Json)
}

/// Set a secret, or put a new value in place of the old one.
#[utoipa::path(
    put, path = "/secrets/{name}", tag = "secrets", operation_id = "set_secret",
    params(("name" = String, Path, description = "The secret's name")), request_body = SecretValue,
    responses(
        (status = 200, body = SecretView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn set(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToAdminister>,
    Parsed(name): Parsed<SecretName>,
    Body(SecretValue { value }): Body<SecretValue>,
) -> Result<Json<SecretView>, Problem> {
    plane.set_secret(&caller, &name, value).await.map(Json)
}

/// Remove a secret. Phases that name it are refused from then on.
#[utoipa::path(
    delete, path = "/secrets/{name}", tag = "secrets", operation_id = "remove_secret",
    params(("name" = String, Path, description = "The secret's name")),
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn remove(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToAdminister>,
    Parsed(name): Parsed<SecretName>,
) -> Result<StatusCode, Problem> {
    plane.remove_secret(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
