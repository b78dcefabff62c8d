//! The world that a plug's code finds: scripts, run once, from whose result every isolate begins.

use std::sync::OnceLock;

use bulkhead_engine::{EngineError, Snapshot};

const SCRIPTS: &[(&str, &str)] = &[
    ("bulkhead:core.js", include_str!("prelude/core.js")),
    ("bulkhead:events.js", include_str!("prelude/events.js")),
    ("bulkhead:timers.js", include_str!("prelude/timers.js")),
    ("bulkhead:text.js", include_str!("prelude/text.js")),
    ("bulkhead:url.js", include_str!("prelude/url.js")),
    ("bulkhead:console.js", include_str!("prelude/console.js")),
    ("bulkhead:streams.js", include_str!("prelude/streams.js")),
    ("bulkhead:fs.js", include_str!("prelude/fs.js")),
    ("bulkhead:host.js", include_str!("prelude/host.js")),
    ("bulkhead:fetch.js", include_str!("prelude/fetch.js")),
    ("bulkhead:plug.js", include_str!("prelude/plug.js")),
];

/// The snapshot, made at the first plug. V8 must have been started.
pub(crate) fn snapshot() -> Result<Snapshot, EngineError> {
    static SNAPSHOT: OnceLock<Snapshot> = OnceLock::new();
    if let Some(snapshot) = SNAPSHOT.get() {
        return Ok(snapshot.clone());
    }
    let snapshot = Snapshot::new(SCRIPTS)?;
    Ok(SNAPSHOT.get_or_init(|| snapshot).clone())
}
