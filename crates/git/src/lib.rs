//! Git, both sides of it: the gateway that sandboxes clone from and push to, and the host's own reading and landing.
//!
//! The rule that shapes everything here (R16): no git command on the host ever runs with configuration, hooks,
//! filters or attributes that an agent could write. Work trees that an agent wrote are never touched; history is
//! read from objects. [`TrustedRepo`] is a person's own repository, whose refs may be listed and moved with its
//! owner's rights; everything else (reading files, diffs, merges, checking a push) happens in private directories
//! that only borrow its objects.

mod checkout;
mod command;
mod diff;
mod error;
mod exchange;
pub mod gateway;
mod hold;
pub mod inside;
mod land;
mod later;
mod ledger;
mod lfs;
mod lfs_remote;
mod names;
mod objects;
mod pktline;
mod preflight;
mod repository;
mod serve;
mod submodules;
mod trusted;
mod upstream;

pub use command::GitProgram;
pub use diff::{ChangeKind, Complete, FileChange, PhaseDiff, shown};
pub use error::{Error, Refusal, Result};
pub use exchange::Taken;
pub use gateway::GatewayLimits;
pub use land::{LandRequest, LandStyle, Landed};
pub use later::{LaterKind, RunsLater, documented_patterns};
pub use ledger::{
    Access, LedgerError, PhaseAuth, PhaseGrant, Push, PushLedger, Recorded, Recovery,
};
pub use names::{InvalidName, Oid, RUN_BRANCHES, RefName};
pub use objects::{ObjectFormat, TreeEntry};
pub use preflight::Preflight;
pub use repository::{Repository, Source};
pub use serve::Served;
pub use submodules::{ListedSubmodule, Lookup, ServedSubmodule};
pub use trusted::TrustedRepo;
pub use upstream::{Upstream, UpstreamCredential};
