//! What travels beside an order and is never printed, logged or put into argv or environment (D7).

use std::{collections::BTreeMap, path::PathBuf};

use bulkhead_model::{ArtifactName, SecretName};
use bulkhead_session::wire::ArtifactKind;
use secrecy::SecretString;

/// The values that one attempt at one phase gets.
#[derive(Debug, Clone)]
pub struct PhaseSecrets {
    /// The phase's own token: good for its branch and its model gateways, while it runs, and for
    /// nothing else.
    pub token: SecretString,
    /// The Unix socket of the control plane's phase gateway.
    pub gateway: PathBuf,
    /// The declared secrets (R17).
    pub values: BTreeMap<SecretName, SecretString>,
    /// Files that hold the artifacts of earlier phases, readable by the executor.
    pub artifacts: Vec<ArtifactFile>,
}

/// One artifact of an earlier phase, as the control plane keeps it.
#[derive(Debug, Clone)]
pub struct ArtifactFile {
    pub name: ArtifactName,
    pub kind: ArtifactKind,
    pub path: PathBuf,
}
