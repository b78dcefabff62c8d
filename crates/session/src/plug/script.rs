//! The seam to plugs that are scripts.
//!
//! This crate knows nothing of JavaScript. The program whose process a session is brings what runs scripts:
//! `bulkhead-js` does, `bulkhead` does not, and so starts `bulkhead-js` for sessions that have some.

use std::path::PathBuf;

use async_trait::async_trait;
use serde_json::Value;

use super::{Plug, PlugError};

/// A script plug as the session's configuration names it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptSpec {
    /// What errors call the plug: the file's name, or the name that the configuration gives.
    pub name: String,
    /// The `.js`, `.mjs`, `.ts` or `.mts` file on the runner's disk; absolute.
    pub file: PathBuf,
    /// Handed to the script as it is written.
    pub config: Value,
}

/// Makes plugs of scripts.
#[async_trait]
pub trait ScriptPlugs: Send + Sync {
    /// Loads one script; nothing of the session has begun yet. A script that cannot be loaded is an error that
    /// names file and line.
    async fn load(&self, spec: ScriptSpec) -> Result<Box<dyn Plug>, PlugError>;
}

/// The answer of a program that runs no scripts.
#[derive(Debug, Clone, Copy)]
pub struct NoScripts;

#[async_trait]
impl ScriptPlugs for NoScripts {
    async fn load(&self, spec: ScriptSpec) -> Result<Box<dyn Plug>, PlugError> {
        Err(PlugError::Words(format!(
            "this program runs no scripts, so not {}: `bulkhead-js` does, and has to lie beside `bulkhead`",
            spec.file.display()
        )))
    }
}
