//! What the scripted agent remembers of a conversation, in a file below its working directory, so that a client can
//! load it again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The mode that every conversation begins in.
pub(super) const FIRST_MODE: &str = "ask";

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Memory {
    #[serde(skip)]
    path: PathBuf,
    pub(super) id: String,
    pub(super) mode: String,
    pub(super) prompts: Vec<String>,
}

impl Memory {
    pub(super) fn begin(file: &Path, cwd: &Path, id: &str) -> Self {
        Self {
            path: cwd.join(file),
            id: id.to_owned(),
            mode: FIRST_MODE.to_owned(),
            prompts: vec![],
        }
    }

    /// The conversation of this id, where the file holds it.
    pub(super) async fn load(file: &Path, cwd: &Path, id: &str) -> Option<Self> {
        let path = cwd.join(file);
        let text = tokio::fs::read(&path).await.ok()?;
        let memory: Self = serde_json::from_slice(&text).ok()?;
        (memory.id == id).then_some(Self { path, ..memory })
    }

    /// A memory that cannot be written is a conversation that cannot be loaded, no more.
    pub(super) async fn keep(&self) {
        if let Ok(text) = serde_json::to_vec(self) {
            drop(tokio::fs::write(&self.path, text).await);
        }
    }
}
