//! The gateway's own errors, in the form of the API that the agent's client expects.

use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};

use super::upstream::ApiStyle;
use crate::body::{self, Body};

/// Why the gateway itself answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    #[error("there is nothing at this path; model APIs are below /model/<upstream>/")]
    NotFound,
    #[error(
        "no model upstream has this name; the operator configures it, and the ones there are: {0}"
    )]
    NoUpstream(String),
    #[error(
        "no phase token came with this request; the agent's API key variable must hold the token that Bulkhead gave it"
    )]
    NoToken,
    #[error("the phase token is not valid (any more); tokens work only while their phase runs")]
    BadToken,
    #[error("this phase may not use this model upstream; add it to the phase's agent")]
    NotForThisPhase,
    #[error("this path is not one below the upstream's base URL")]
    Path,
    #[error("this method is not passed on")]
    Method,
    #[error("this header field or URL cannot be passed on")]
    Unsendable,
    #[error("the gateway has too many requests at work; try again")]
    Busy,
    #[error("the model upstream cannot be reached: {0}")]
    Unreachable(String),
    #[error("the model upstream did not begin to answer in time")]
    Timeout,
    #[error(
        "the model upstream answered with a redirect to {0}, which is not followed with a credential; the operator sets the upstream's base URL to where the API really is"
    )]
    Redirect(String),
    #[error(
        "the model upstream compressed its answer although it was asked not to, so it cannot be checked"
    )]
    Compressed,
}

impl Problem {
    const fn status(&self) -> StatusCode {
        match self {
            Self::NotFound | Self::NoUpstream(_) => StatusCode::NOT_FOUND,
            Self::NoToken | Self::BadToken => StatusCode::UNAUTHORIZED,
            Self::NotForThisPhase => StatusCode::FORBIDDEN,
            Self::Path | Self::Unsendable => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Unreachable(_) | Self::Redirect(_) | Self::Compressed => StatusCode::BAD_GATEWAY,
        }
    }

    pub(super) fn response(&self, style: ApiStyle) -> Response<Body> {
        let status = self.status();
        let message = format!("Bulkhead's model gateway: {self}");
        let text = shape(style, status, &message).to_string();
        let mut response = Response::new(body::full(text));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

fn shape(style: ApiStyle, status: StatusCode, message: &str) -> Value {
    let (anthropic, google) = match status {
        StatusCode::UNAUTHORIZED => ("authentication_error", "UNAUTHENTICATED"),
        StatusCode::FORBIDDEN => ("permission_error", "PERMISSION_DENIED"),
        StatusCode::NOT_FOUND => ("not_found_error", "NOT_FOUND"),
        StatusCode::BAD_REQUEST | StatusCode::METHOD_NOT_ALLOWED => {
            ("invalid_request_error", "INVALID_ARGUMENT")
        }
        StatusCode::SERVICE_UNAVAILABLE => ("overloaded_error", "UNAVAILABLE"),
        StatusCode::GATEWAY_TIMEOUT => ("timeout_error", "DEADLINE_EXCEEDED"),
        _ => ("api_error", "UNAVAILABLE"),
    };
    match style {
        ApiStyle::Anthropic => {
            json!({"type": "error", "error": {"type": anthropic, "message": message}})
        }
        ApiStyle::OpenAi => {
            json!({"error": {"message": message, "type": anthropic, "param": null, "code": null}})
        }
        ApiStyle::Google => {
            json!({"error": {"code": status.as_u16(), "message": message, "status": google}})
        }
    }
}
