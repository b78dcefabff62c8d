//! What can go wrong on a host.

use std::{error::Error, sync::Arc};

/// Cloneable, because everybody who waited for the same connection gets the same error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HostError {
    /// A boundary of the host could not be built, so nothing ran on it (R3).
    #[error("{0}")]
    Refused(String),
    #[error("connecting to {host}")]
    Connect {
        host: String,
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    #[error("there is no program {program:?} on {host}")]
    NotFound { host: String, program: String },
    #[error("starting {program:?} on {host}")]
    Spawn {
        host: String,
        program: String,
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    #[error("reaching {endpoint} on {host}")]
    Forward {
        host: String,
        endpoint: String,
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The host has no such thing, and says what to do instead.
    #[error("{host} cannot {what}")]
    Unsupported { host: String, what: String },
    #[error("{host} has ended")]
    Gone { host: String },
    #[error("reaching a process on {host}")]
    Process {
        host: String,
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
}

/// An error and its sources as one line, for where only words fit.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        words.push_str(": ");
        words.push_str(&inner.to_string());
        source = inner.source();
    }
    words
}
