//! Runs and their gates.

use axum::{Json, extract::State, http::StatusCode};
use bulkhead_model::{GateId, PhaseName, RunId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    auth::{Allowed, ToAdminister, ToDecide, ToRead, ToRun},
    extract::{Body, Params, Parsed},
};
use crate::{
    ControlPlane, DecisionRequest, DiffView, GateView, LandRequest, LandView, NewRun, Page,
    PauseRequest, Problem, ProblemBody, RunQuery, RunView, StopAllView,
};

/// Runs, newest first.
#[utoipa::path(
    get, path = "/runs", tag = "runs", operation_id = "list_runs", params(RunQuery),
    responses(
        (status = 200, body = Page<RunView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Params(query): Params<RunQuery>,
) -> Result<Json<Page<RunView>>, Problem> {
    plane.runs(query).await.map(Json)
}

/// Make a run. It starts by itself.
#[utoipa::path(
    post, path = "/runs", tag = "runs", operation_id = "create_run", request_body = NewRun,
    responses(
        (status = 201, body = RunView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToRun>,
    Body(new): Body<NewRun>,
) -> Result<(StatusCode, Json<RunView>), Problem> {
    let run = plane.create_run(&caller, new).await?;
    Ok((StatusCode::CREATED, Json(run)))
}

/// One run.
#[utoipa::path(
    get, path = "/runs/{run}", tag = "runs", operation_id = "show_run", params(("run" = String, Path, description = "The run's id")),
    responses(
        (status = 200, body = RunView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn show(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed(run): Parsed<RunId>,
) -> Result<Json<RunView>, Problem> {
    plane.run(run).await.map(Json)
}

/// Cancel a run: its phase is stopped, what was not pushed is discarded.
#[utoipa::path(
    post, path = "/runs/{run}/cancel", tag = "runs", operation_id = "cancel_run", params(("run" = String, Path, description = "The run's id")),
    responses(
        (status = 200, body = RunView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn cancel(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToRun>,
    Parsed(run): Parsed<RunId>,
) -> Result<Json<RunView>, Problem> {
    plane.cancel(&caller, run).await.map(Json)
}

/// Pause a run: nothing new is dispatched.
#[utoipa::path(
    post, path = "/runs/{run}/pause", tag = "runs", operation_id = "pause_run", params(("run" = String, Path, description = "The run's id")),
    request_body = PauseRequest,
    responses(
        (status = 200, body = RunView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn pause(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToRun>,
    Parsed(run): Parsed<RunId>,
    Body(request): Body<PauseRequest>,
) -> Result<Json<RunView>, Problem> {
    plane.pause(&caller, run, request).await.map(Json)
}

/// Resume a paused run.
#[utoipa::path(
    post, path = "/runs/{run}/resume", tag = "runs", operation_id = "resume_run", params(("run" = String, Path, description = "The run's id")),
    responses(
        (status = 200, body = RunView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resume(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToRun>,
    Parsed(run): Parsed<RunId>,
) -> Result<Json<RunView>, Problem> {
    plane.resume(&caller, run).await.map(Json)
}

/// Cancel every run that has not ended.
#[utoipa::path(
    post, path = "/stop-all", tag = "runs",
    responses(
        (status = 200, body = StopAllView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn stop_all(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToAdminister>,
) -> Result<Json<StopAllView>, Problem> {
    plane.stop_all(&caller).await.map(Json)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// Only this phase's part; default: the whole run.
    phase: Option<String>,
}

/// What the run changed.
#[utoipa::path(
    get, path = "/runs/{run}/diff", tag = "runs", params(("run" = String, Path, description = "The run's id"), DiffQuery),
    responses(
        (status = 200, body = DiffView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn diff(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed(run): Parsed<RunId>,
    Params(query): Params<DiffQuery>,
) -> Result<Json<DiffView>, Problem> {
    let phase: Option<PhaseName> = query.phase.map(|name| name.parse()).transpose()?;
    plane.diff(run, phase).await.map(Json)
}

/// Bring the run's branch into its base, by merge or rebase.
#[utoipa::path(
    post, path = "/runs/{run}/land", tag = "runs", params(("run" = String, Path, description = "The run's id")),
    request_body = LandRequest,
    responses(
        (status = 200, body = LandView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn land(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToDecide>,
    Parsed(run): Parsed<RunId>,
    Body(request): Body<LandRequest>,
) -> Result<Json<LandView>, Problem> {
    plane.land(&caller, run, request).await.map(Json)
}

/// A waiting gate, with the binding that an answer must carry.
#[utoipa::path(
    get, path = "/runs/{run}/gates/{gate}", tag = "gates",
    params(("run" = String, Path, description = "The run's id"), ("gate" = String, Path, description = "The gate's id")),
    responses(
        (status = 200, body = GateView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn gate(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed((run, gate)): Parsed<(RunId, GateId)>,
) -> Result<Json<GateView>, Problem> {
    plane.gate(run, gate).await.map(Json)
}

/// Answer a waiting gate. The same answer twice is one; an answer to what has changed since is void.
#[utoipa::path(
    post, path = "/runs/{run}/gates/{gate}/decision", tag = "gates",
    params(("run" = String, Path, description = "The run's id"), ("gate" = String, Path, description = "The gate's id")),
    request_body = DecisionRequest,
    responses(
        (status = 200, body = RunView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn decide(
    State(plane): State<ControlPlane>,
    Allowed(caller, _): Allowed<ToDecide>,
    Parsed((run, gate)): Parsed<(RunId, GateId)>,
    Body(request): Body<DecisionRequest>,
) -> Result<Json<RunView>, Problem> {
    plane.decide(&caller, run, gate, request).await.map(Json)
}
