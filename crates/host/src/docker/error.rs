//! Why there is no container.

use std::io;

#[derive(Debug, thiserror::Error)]
pub(super) enum DockerError {
    #[error("{doing}")]
    Engine {
        doing: &'static str,
        #[source]
        source: bollard::errors::Error,
    },
    #[error(
        "the engine does not have the image {image}: bring it there (docker pull {image}), or let the session pull it (pull: if-missing)"
    )]
    NoImage { image: String },
    #[error(
        "{what} is for {has}, and processes there need a helper of that architecture; this build has the one for {needs}: use a runner of the machine's architecture, or an image for {needs}"
    )]
    Architecture {
        what: &'static str,
        has: String,
        needs: &'static str,
    },
    /// It was removed again.
    #[error("the engine made another container than was asked for: {}", .0.join("; "))]
    NotAsAsked(Vec<String>),
    #[error("the container ended as it started{}", said(.0))]
    Died(String),
    #[error("packing the helper")]
    Pack(#[source] io::Error),
}

fn said(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

impl DockerError {
    pub(super) const fn engine(doing: &'static str) -> impl FnOnce(bollard::errors::Error) -> Self {
        move |source| Self::Engine { doing, source }
    }
}

/// The engine knows no such thing.
pub(super) fn is_missing(error: &bollard::errors::Error) -> bool {
    status(error) == Some(404)
}

/// The thing is being removed already, or is in another state than was thought.
pub(super) fn is_conflict(error: &bollard::errors::Error) -> bool {
    status(error) == Some(409)
}

fn status(error: &bollard::errors::Error) -> Option<u16> {
    match error {
        bollard::errors::Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}
