//! What a plug's handler can fail with.

use std::time::Duration;

use bulkhead_host::{FsError, HostError};

use crate::plugs::RunError;

/// An error of a handler. The list adds the plug's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlugError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    File(#[from] FsError),
    #[error("keeping the session's journal")]
    Journal(#[from] std::io::Error),
    #[error("{handler} took longer than its limit of {limit:?}")]
    TimeLimit {
        handler: &'static str,
        limit: Duration,
    },
    #[error("no host comes before it")]
    NoHost,
    /// The boundary that this plug would be cannot be built, or is not allowed here.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Words(String),
    #[error("{what}")]
    Because {
        what: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl PlugError {
    pub fn words(words: impl Into<String>) -> Self {
        Self::Words(words.into())
    }

    pub fn because(
        what: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Because {
            what: what.into(),
            source: Box::new(source),
        }
    }
}

/// A handler failed, and whose it was.
#[derive(Debug, thiserror::Error)]
#[error("plug {plug}")]
pub struct NamedError {
    pub plug: String,
    #[source]
    pub source: PlugError,
}

impl NamedError {
    pub fn of(plug: &str, source: PlugError) -> Self {
        Self {
            plug: plug.to_owned(),
            source,
        }
    }
}
