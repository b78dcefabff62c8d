//! Every error that reaches a caller, in one form (RFC 9457): a code for programs, words for people, and the
//! remedy where the caller can do something.

use bulkhead_model::{ids::InvalidId, run::Refused};
use bulkhead_store::{Error as StoreError, runs::ApplyError};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong, for programs. A code never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    InvalidInput,
    InvalidWorkflow,
    Unauthenticated,
    Forbidden,
    NotFound,
    /// What was asked for does not fit the state as it is.
    Conflict,
    /// What was decided on has changed since it was shown.
    DecisionVoid,
    /// The merge or rebase met conflicts, or the checkout is dirty.
    CannotLand,
    TooLarge,
    TimedOut,
    /// A boundary could not be built, so nothing was run.
    Refused,
    /// An upstream (a repository, a webhook) could not be reached.
    Upstream,
    /// The disk is full.
    StorageFull,
    ShuttingDown,
    Internal,
}

impl Code {
    pub const fn status(self) -> StatusCode {
        match self {
            Self::InvalidInput | Self::InvalidWorkflow => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Conflict | Self::DecisionVoid | Self::CannotLand => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TimedOut => StatusCode::REQUEST_TIMEOUT,
            Self::Upstream => StatusCode::BAD_GATEWAY,
            Self::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
            Self::Refused | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::InvalidInput => "The request is not valid",
            Self::InvalidWorkflow => "The workflow is not valid",
            Self::Unauthenticated => "A valid token is needed",
            Self::Forbidden => "The token may not do this",
            Self::NotFound => "There is no such thing",
            Self::Conflict => "This does not fit the present state",
            Self::DecisionVoid => "What was decided on has changed",
            Self::CannotLand => "The result cannot be landed",
            Self::TooLarge => "The request is too large",
            Self::TimedOut => "The request took too long",
            Self::Refused => "A boundary could not be built",
            Self::Upstream => "An upstream could not be reached",
            Self::StorageFull => "The server's disk is full",
            Self::ShuttingDown => "The server is shutting down",
            Self::Internal => "The server failed",
        }
    }
}

/// An error on its way to a caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.detail)]
pub struct Problem(Box<ProblemBody>);

/// An error as a caller reads it: `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    /// The same for every problem of one code.
    pub title: String,
    pub status: u16,
    pub code: Code,
    /// What happened, in words.
    pub detail: String,
    /// What the caller can do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The field of the request that is at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Several findings, for example of a workflow: one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemBody {
            title: code.title().to_owned(),
            status: code.status().as_u16(),
            code,
            detail: detail.into(),
            remedy: None,
            field: None,
            findings: Vec::new(),
            request_id: None,
        }))
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    pub fn body(&self) -> &ProblemBody {
        &self.0
    }

    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    #[must_use]
    pub(crate) fn request_id(mut self, id: &str) -> Self {
        self.0.request_id = Some(id.to_owned());
        self
    }

    #[must_use]
    pub(crate) fn findings(mut self, findings: Vec<String>) -> Self {
        self.0.findings = findings;
        self
    }

    pub(crate) fn internal(error: &dyn std::error::Error) -> Self {
        Self::new(Code::Internal, chain(error))
    }
}

/// An error with its sources, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

impl From<ProblemBody> for Problem {
    fn from(body: ProblemBody) -> Self {
        Self(Box::new(body))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = chain(&error);
        let code = match &error {
            StoreError::NotFound { .. } => Code::NotFound,
            StoreError::VersionConflict { .. } | StoreError::KeyReused { .. } => Code::Conflict,
            StoreError::TooLarge { .. } => Code::TooLarge,
            StoreError::WeakSecret { .. } => Code::InvalidInput,
            _ if detail.contains("disk is full") || detail.contains("No space left") => {
                Code::StorageFull
            }
            _ => Code::Internal,
        };
        Self::new(code, detail)
    }
}

impl From<ApplyError> for Problem {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Store(error) => error.into(),
            ApplyError::Refused(refused) => refused.into(),
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let code = match &refused {
            Refused::Void { .. } => Code::DecisionVoid,
            Refused::NotAnApprover { .. } => Code::Forbidden,
            Refused::NoSuchGate { .. } => Code::NotFound,
            Refused::Comment { .. } => Code::InvalidInput,
            _ => Code::Conflict,
        };
        Self::new(code, refused.to_string())
    }
}

impl From<InvalidId> for Problem {
    fn from(error: InvalidId) -> Self {
        Self::new(Code::InvalidInput, error.to_string())
    }
}
