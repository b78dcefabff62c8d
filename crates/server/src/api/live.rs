//! Live streams: server-sent events that resume by sequence.
//!
//! Each event's id is the sequence number of what it carries; a client that comes back with `Last-Event-ID` (or
//! `?after=`) gets what came after, and nothing twice. A stream says `end` when nothing more can come, and `bye` when
//! the server is going away and the client should come back.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use bulkhead_model::{PhaseName, RunId};
use futures::{Stream, StreamExt as _};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{
    auth::{Allowed, ToRead},
    extract::{Params, Parsed},
};
use crate::{ControlPlane, EventView, LogLine, Problem, ProblemBody, RunView, follow::Live};

/// How often a silent stream says that it lives, so that nothing on the way takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct After {
    /// Only what came after this number; the header `Last-Event-ID` says the same and counts first.
    after: Option<u64>,
    /// Which attempt; default: the latest.
    attempt: Option<u32>,
}

impl After {
    fn resume(&self, headers: &HeaderMap) -> u64 {
        let last = headers
            .get("last-event-id")
            .and_then(|value| value.to_str().ok());
        last.and_then(|text| text.parse().ok())
            .or(self.after)
            .unwrap_or(0)
    }
}

/// The run, now and at each change, until it has ended. Event ids are its versions.
#[utoipa::path(
    get, path = "/runs/{run}/watch", tag = "live", operation_id = "watch_run",
    params(("run" = String, Path, description = "The run's id"), After),
    responses(
        (status = 200, description = "Events `run` (RunView), `end`, `bye`", body = RunView, content_type = "text/event-stream"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn watch(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed(run): Parsed<RunId>,
    Params(query): Params<After>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let versions = plane.watch(run, query.resume(&headers)).await?;
    Ok(stream(versions, "run", |run| run.version))
}

/// What an attempt says, as it says it.
#[utoipa::path(
    get, path = "/runs/{run}/phases/{phase}/events/live", tag = "live", operation_id = "follow_events",
    params(("run" = String, Path, description = "The run's id"), ("phase" = String, Path, description = "The phase's name"), After),
    responses(
        (status = 200, description = "Events `event` (EventView), `end`, `bye`", body = EventView, content_type = "text/event-stream"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn events(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed((run, phase)): Parsed<(RunId, PhaseName)>,
    Params(query): Params<After>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let attempt = query.attempt.unwrap_or(0);
    let events = plane
        .follow_events(run, &phase, attempt, query.resume(&headers))
        .await?;
    Ok(stream(events, "event", |event: &EventView| event.seq))
}

/// The masked log of an attempt, as it is written.
#[utoipa::path(
    get, path = "/runs/{run}/phases/{phase}/log/live", tag = "live", operation_id = "follow_log",
    params(("run" = String, Path, description = "The run's id"), ("phase" = String, Path, description = "The phase's name"), After),
    responses(
        (status = 200, description = "Events `line` (LogLine), `end`, `bye`", body = LogLine, content_type = "text/event-stream"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn log(
    State(plane): State<ControlPlane>,
    _: Allowed<ToRead>,
    Parsed((run, phase)): Parsed<(RunId, PhaseName)>,
    Params(query): Params<After>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let attempt = query.attempt.unwrap_or(0);
    let lines = plane
        .follow_log(run, &phase, attempt, query.resume(&headers))
        .await?;
    Ok(stream(lines, "line", |line: &LogLine| line.seq))
}

fn stream<T: Serialize + Send + 'static>(
    live: Live<T>,
    name: &'static str,
    id: fn(&T) -> u64,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = live.map(move |item| {
        let event = match item {
            crate::follow::Item::New(value) => {
                let event = Event::default().event(name).id(id(&value).to_string());
                event
                    .json_data(&value)
                    .unwrap_or_else(|_| Event::default().event("error"))
            }
            crate::follow::Item::End => Event::default().event("end").data("{}"),
            crate::follow::Item::Bye => Event::default().event("bye").data("{}"),
            crate::follow::Item::Failed(problem) => {
                let event = Event::default().event("error");
                event.json_data(problem.body()).unwrap_or_default()
            }
        };
        Ok(event)
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}
