//! Why a call of a function of `host` came to nothing, as the plugin sees it.

use bulkhead_wire::{pipe, platform};

/// For programs. The names are part of what plugins are promised (docs/plugins/host.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The arguments are wrong.
    BadRequest,
    /// Policy says no: an undeclared host or secret, a missing permission.
    Denied,
    /// A count, rate or size is used up.
    Limit,
    NotFound,
    /// It took too long.
    Timeout,
    /// It is not offered here, or who should answer did not.
    Unavailable,
    /// It was tried, and failed.
    Failed,
}

impl Code {
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Denied => "denied",
            Self::Limit => "limit",
            Self::NotFound => "not_found",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
        }
    }
}

impl From<platform::error::Code> for Code {
    fn from(code: platform::error::Code) -> Self {
        use platform::error::Code as Theirs;
        match code {
            Theirs::Unavailable => Self::Unavailable,
            Theirs::Denied => Self::Denied,
            Theirs::NotFound => Self::NotFound,
            Theirs::BadRequest => Self::BadRequest,
            Theirs::Limit => Self::Limit,
            Theirs::Failed | Theirs::Unspecified => Self::Failed,
        }
    }
}

/// The call's promise is rejected with this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    pub code: Code,
    /// What was being done, what is wrong, and the remedy where there is one.
    pub message: String,
}

/// The longest message that goes into an isolate.
const MESSAGE_CHARS_MAX: usize = 500;

impl CallError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(end);
        }
        Self { code, message }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, message)
    }
}

impl From<CallError> for pipe::CallError {
    fn from(error: CallError) -> Self {
        Self {
            code: error.code.name().to_owned(),
            message: error.message,
        }
    }
}

impl From<platform::Error> for CallError {
    fn from(error: platform::Error) -> Self {
        Self::new(error.code().into(), error.message)
    }
}
