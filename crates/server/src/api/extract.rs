//! Inputs of requests, with errors that are problems: JSON bodies, queries, path parts.

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, rejection::JsonRejection},
};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::{Code, Problem};

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::from_request(request, state).await {
            Ok(Json(value)) => Ok(Self(value)),
            Err(rejection) => Err(body_problem(&rejection)),
        }
    }
}

fn body_problem(rejection: &JsonRejection) -> Problem {
    if rejection.status() == http::StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(Code::TooLarge, "the body is larger than the server takes");
    }
    Problem::new(Code::InvalidInput, rejection.body_text())
        .remedy("send JSON as the API's document describes it, with content type application/json")
}

/// The query string.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::new(Code::InvalidInput, rejection.body_text())),
        }
    }
}

/// The parts of the path.
pub(super) struct Parsed<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Parsed<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::new(Code::InvalidInput, rejection.body_text())),
        }
    }
}
