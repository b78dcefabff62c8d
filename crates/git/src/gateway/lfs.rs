//! stub
use std::sync::Arc;

use axum::{extract::Request, response::Response};
use http::StatusCode;

use super::{Gateway, Refused, Target};

pub(crate) async fn serve(
    _gateway: &Arc<Gateway>,
    _target: Target,
    _request: Request,
) -> Result<Response, Refused> {
    Err(Refused::new(StatusCode::NOT_FOUND, "LFS"))
}
