//! One session process of a phase, and its entry in the journal.

use std::sync::Arc;

use bulkhead_session::{Launch, SessionProcess};
use tokio::net::UnixStream;

use super::{
    BuiltinConfig,
    journal::{Entry, Journal},
};
use crate::{PhaseKey, StartError};

/// Starts the process. Where the entry cannot be written the phase goes on: the socket's end still ends the session.
/// The entry is removed when it is dropped.
pub(super) fn spawn(
    config: &BuiltinConfig,
    key: &PhaseKey,
    journal: &Arc<Journal>,
) -> Result<(SessionProcess, Entry, UnixStream), StartError> {
    let launch = Launch {
        program: config.program.clone(),
        args: config.args.clone(),
    };
    let (process, socket) = SessionProcess::spawn(&launch).map_err(|source| StartError::Spawn {
        program: config.program.display().to_string(),
        source,
    })?;
    let entry = journal.enter(key, process.id());
    Ok((process, entry, socket))
}
