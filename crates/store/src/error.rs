//! What can go wrong with what is stored, each with what was being done.

use std::{io, path::PathBuf};

use bulkhead_model::{Fence, RunId, SecretName, run::EffectId};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the database failed while {doing}")]
    Database {
        doing: &'static str,
        source: sqlx::Error,
    },
    #[error(
        "could not bring the database to this version of Bulkhead; if a newer one has used it, use that one or a backup"
    )]
    Migration(#[source] sqlx::migrate::MigrateError),
    #[error("could not {doing} {}", path.display())]
    File {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("another Bulkhead server uses the data directory {}; stop it, or choose another with --data-dir", path.display())]
    InUse { path: PathBuf },
    #[error("{} may be read by others (mode {mode:o}); make it private: chmod {wanted:o} {}", path.display(), path.display())]
    NotPrivate {
        path: PathBuf,
        mode: u32,
        wanted: u32,
    },
    #[error("what the database holds as {what} cannot be read back")]
    Corrupt {
        what: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{what} could not be written as JSON")]
    Encode {
        what: &'static str,
        source: serde_json::Error,
    },
    #[error("there is no {kind} {name}")]
    NotFound { kind: &'static str, name: String },
    #[error("run {run} has moved to version {found}, and {expected} was expected; read it again")]
    VersionConflict {
        run: RunId,
        expected: u64,
        found: u64,
    },
    #[error("the idempotency key {key:?} was used before with another request; use a new key")]
    KeyReused { key: String },
    /// The holder's lease was taken over, has run out, or was given back.
    #[error("fence {fence} no longer holds the lease on {resource}")]
    Stale { resource: String, fence: Fence },
    #[error("{what} is {size} bytes, and at most {max} are kept")]
    TooLarge {
        what: &'static str,
        size: u64,
        max: u64,
    },
    #[error("the claim on effect {effect} has passed to another worker")]
    ClaimLost { effect: EffectId },
    #[error("the value of {name} was not accepted: {why}")]
    WeakSecret { name: SecretName, why: &'static str },
    #[error(
        "the secret {name} does not open: its row or the master key was tampered with or damaged; set it again"
    )]
    Unseal { name: String },
    #[error(
        "the secrets are sealed under the master key {wanted}, which is not here; bring back the file `key` that belongs to this database, or hand in that key"
    )]
    MasterKeyMissing { wanted: String },
    #[error("the master key is not 32 bytes in base64 or hex")]
    MasterKeyForm,
    #[error(
        "a master key that is handed in is replaced by one that is handed in, and the key file by the key file"
    )]
    MasterKeyPlace,
    #[error("the system's source of random numbers failed")]
    Random,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds what was being done to a database error.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, sqlx::Error> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| Error::Database { doing, source })
    }
}

pub(crate) fn corrupt<E>(what: &'static str) -> impl FnOnce(E) -> Error
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| Error::Corrupt {
        what,
        source: source.into(),
    }
}

pub(crate) fn encode(what: &'static str) -> impl FnOnce(serde_json::Error) -> Error {
    move |source| Error::Encode { what, source }
}

pub(crate) fn file(
    doing: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| Error::File {
        doing,
        path,
        source,
    }
}
