//! What phases said and handed on: events, logs, artifacts, as documents.

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use bulkhead_model::{ArtifactName, PhaseName, RunId};
use http::{HeaderValue, header};
use serde::Deserialize;
use tokio_util::io::ReaderStream;
use utoipa::IntoParams;

use super::{
    auth::{Allowed, ToRead},
    extract::{Params, Parsed},
};
use crate::{ArtifactView, ControlPlane, EventView, Problem, ProblemBody};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventQuery {
    /// Which attempt; default: the latest.
    attempt: Option<u32>,
    /// Only what came after this sequence number.
    after: Option<u64>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Which attempt; default: the latest.
    attempt: Option<u32>,
}

/// A page of what an attempt said: at most 1,000 events after `after`.
#[utoipa::path(
    get, path = "/runs/{run}/phases/{phase}/events", tag = "phases", operation_id = "list_events",
    params(("run" = String, Path, description = "The run's id"), ("phase" = String, Path, description = "The phase's name"), EventQuery),
    responses(
        (status = 200, body = Vec<EventView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn events(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed((run, phase)): Parsed<(RunId, PhaseName)>,
    Params(query): Params<EventQuery>,
) -> Result<Json<Vec<EventView>>, Problem> {
    let attempt = query.attempt.unwrap_or(0);
    let after = query.after.unwrap_or(0);
    plane.events(run, &phase, attempt, after).await.map(Json)
}

/// The masked log of an attempt, as plain text.
#[utoipa::path(
    get, path = "/runs/{run}/phases/{phase}/log", tag = "phases", operation_id = "download_log",
    params(("run" = String, Path, description = "The run's id"), ("phase" = String, Path, description = "The phase's name"), LogQuery),
    responses(
        (status = 200, description = "The log", body = String, content_type = "text/plain"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn log(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed((run, phase)): Parsed<(RunId, PhaseName)>,
    Params(query): Params<LogQuery>,
) -> Result<Response, Problem> {
    let text = plane
        .log_stream(run, &phase, query.attempt.unwrap_or(0))
        .await?;
    let mut response = Body::from_stream(text).into_response();
    // Plain text, so that no browser ever takes what an agent wrote for a page.
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}

/// The artifacts of a run.
#[utoipa::path(
    get, path = "/runs/{run}/artifacts", tag = "phases", operation_id = "list_artifacts",
    params(("run" = String, Path, description = "The run's id")),
    responses(
        (status = 200, body = Vec<ArtifactView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn artifacts(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed(run): Parsed<RunId>,
) -> Result<Json<Vec<ArtifactView>>, Problem> {
    plane.artifacts(run).await.map(Json)
}

/// One artifact's bytes.
#[utoipa::path(
    get, path = "/runs/{run}/artifacts/{artifact}", tag = "phases", operation_id = "download_artifact",
    params(("run" = String, Path, description = "The run's id"), ("artifact" = String, Path, description = "The artifact's name")),
    responses(
        (status = 200, description = "The bytes, as the agent wrote them", content_type = "application/octet-stream"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn artifact(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed((run, name)): Parsed<(RunId, ArtifactName)>,
) -> Result<Response, Problem> {
    let file = plane.open_artifact(run, &name).await?;
    let mut response = Body::from_stream(ReaderStream::new(file)).into_response();
    let headers = response.headers_mut();
    let bytes = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, bytes);
    headers.insert(
        header::CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment"),
    );
    Ok(response)
}
