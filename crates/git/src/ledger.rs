//! What the gateway asks its owner: who holds this token, and may this push happen (R6, R14).

use std::{error::Error as StdError, sync::Arc};

use async_trait::async_trait;
use bulkhead_model::{Fence, PhaseName, RunId};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::{
    names::{Oid, RefName},
    serve::Served,
};

/// What a phase token stands for: one attempt at one phase, and the one branch that it may push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseGrant {
    pub run: RunId,
    pub phase: PhaseName,
    pub attempt: u32,
    pub fence: Fence,
    pub branch: RefName,
}

/// A grant with the repository it is for.
#[derive(Debug, Clone)]
pub struct Access {
    pub grant: PhaseGrant,
    pub repo: Arc<Served>,
}

/// Checks phase tokens. Called once per request, so a token that was withdrawn stops working at once.
#[async_trait]
pub trait PhaseAuth: Send + Sync + 'static {
    /// `Ok(None)` where the token is unknown, expired, or its phase no longer runs.
    async fn access(&self, token: &SecretString) -> Result<Option<Access>, LedgerError>;
}

/// One push: the grant's branch from `old` to `new`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Push {
    pub grant: PhaseGrant,
    pub old: Oid,
    pub new: Oid,
}

/// How a push stands in the ledger after [`PushLedger::record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// This is the attempt's first push; it is now durable.
    New,
    /// The same (old, new) was recorded before: the client repeats itself, and may.
    Repeat,
}

/// Why the ledger refuses a push. The text reaches the sandbox, so it holds nothing secret.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("this phase was handed to another executor (fence {current} is newer than {shown})")]
    StaleFence { shown: Fence, current: Fence },
    #[error("this phase is already complete: it pushed {new}")]
    AlreadyPushed { new: Oid },
    #[error("this phase no longer runs")]
    Ended,
    /// The store could not answer. The push is not forwarded; the client may try again.
    #[error("the ledger of pushes could not be read or written")]
    Unavailable(#[source] Box<dyn StdError + Send + Sync>),
}

/// The durable record of pushes, over the store.
///
/// The order of one push is: [`record`](Self::record), then the repository changes, then
/// [`done`](Self::done), then the sandbox hears of success. Whatever is recorded and not done after a crash is
/// settled with [`Repository::recover`](crate::Repository::recover).
#[async_trait]
pub trait PushLedger: Send + Sync + 'static {
    /// Makes the push durable, in one transaction with the check that the grant's fence is the current one.
    /// One push completes a phase: a second, different one of the same attempt is
    /// [`LedgerError::AlreadyPushed`]; the same one again is [`Recorded::Repeat`].
    async fn record(&self, push: &Push) -> Result<Recorded, LedgerError>;

    /// Notes that the branch now is at `new`. Idempotent.
    async fn done(&self, push: &Push) -> Result<(), LedgerError>;
}

/// What became of a push that was recorded, seen from the branch itself (R14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Recovery {
    /// The branch is at `new`: the phase is complete.
    Landed,
    /// The branch is at `old`: the push never happened, the phase is dispatched again.
    NotLanded,
    /// The branch is elsewhere (`None`: it is gone): somebody else moved it, and a person must look.
    Foreign { at: Option<Oid> },
}
