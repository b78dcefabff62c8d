//! Answers: problems as `application/problem+json`.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Uri, header};

use crate::{Code, Problem};

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = respond(&self);
        // The outermost layer writes it again with the request's id.
        response.extensions_mut().insert(self);
        response
    }
}

pub(super) fn respond(problem: &Problem) -> Response {
    let body = serde_json::to_vec(problem.body()).unwrap_or_default();
    let mut response = (problem.code().status(), body).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    if problem.code() == Code::Unauthenticated {
        let challenge = HeaderValue::from_static("Bearer realm=\"bulkhead\"");
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

pub(super) async fn not_found(uri: Uri) -> Problem {
    Problem::new(
        Code::NotFound,
        format!("there is nothing at {}", uri.path()),
    )
}
