//! A plugin's manifest (P8): `plugin.json` says what a plugin is, which of its exports are called and for what, and all
//! that it asks for. Whoever installs it sees the hosts and permissions first.
//!
//! The file is JSON. It is read with the machinery of the workflow's file, so that every problem is named at once, with
//! its place, what was expected, and the nearest right name. `docs/plugin.schema.json` is made from [`schema`].

mod capabilities;
mod json;
mod permission;
mod read;
pub mod schema;
mod settings;

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

pub use capabilities::{
    Capabilities, Channel, Event, Handler, Hook, SshHook, Tool, Verdict, VoiceFunction,
};
pub use permission::Permission;
pub use settings::{Setting, SettingKind, SettingsError};

use crate::{
    network::{EgressRule, HostName, HostPattern, NetworkError, NetworkPolicy},
    workflow::WorkflowError,
};

/// The file's name in a plugin's directory.
pub const FILE: &str = "plugin.json";

#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub name: String,
    pub version: String,
    pub description: Option<String>,
    /// The plugin's one module, relative to the manifest.
    pub entry: String,
    pub capabilities: Capabilities,
    /// In the order of the file.
    pub permissions: Vec<Permission>,
    pub egress: Vec<Egress>,
    pub settings: BTreeMap<String, Setting>,
    pub secrets: BTreeMap<String, Secret>,
}

/// A host that `host.fetch` may reach, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Egress {
    pub rule: EgressRule,
    pub reason: Option<String>,
}

/// A secret that the user binds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    pub label: Option<String>,
    pub description: Option<String>,
    pub required: bool,
}

/// What `host.fetch` may reach once the settings are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveEgress {
    pub policy: NetworkPolicy,
    /// Those that the installer named through a `hosts` setting: only they can be private.
    pub named: HashSet<HostName>,
}

impl Manifest {
    /// Reads a manifest. `file` is its name, for the error's sake.
    ///
    /// # Errors
    /// With every independent problem of the file at once, in the order of the file.
    pub fn read(file: &str, text: &str) -> Result<Self, WorkflowError> {
        read::read(file, text)
    }

    /// As [`Manifest::read`], from bytes that may be anything.
    ///
    /// # Errors
    /// Also where the bytes are not UTF-8.
    pub fn read_bytes(file: &str, bytes: &[u8]) -> Result<Self, WorkflowError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::read(file, text),
            Err(_) => Err(json::not_text(file)),
        }
    }

    /// Every export that the manifest promises.
    pub fn handlers(&self) -> Vec<Handler> {
        self.capabilities.handlers()
    }

    /// The handler of a way such as `tools.weather`. `tool.weather` means the same.
    pub fn handler(&self, way: &str) -> Option<Handler> {
        let is_meant = |handler: &Handler| {
            let full = handler.path.join(".");
            let (first, rest) = full.split_once('.').unwrap_or((full.as_str(), ""));
            full == way
                || first
                    .strip_suffix('s')
                    .is_some_and(|one| format!("{one}.{rest}") == way)
        };
        self.handlers().into_iter().find(is_meant)
    }

    /// Checks settings as a user gives them, and fills in what has a default.
    ///
    /// # Errors
    /// With every problem at once.
    pub fn settings(
        &self,
        given: &Map<String, Value>,
    ) -> Result<Map<String, Value>, SettingsError> {
        settings::complete(&self.settings, given)
    }

    /// The declared hosts, and those of `hosts` settings. `settings` are complete.
    ///
    /// # Errors
    /// Where they are too many together.
    pub fn egress(&self, settings: &Map<String, Value>) -> Result<EffectiveEgress, NetworkError> {
        let named: Vec<EgressRule> = settings::hosts(&self.settings, settings);
        let declared = self.egress.iter().map(|egress| &egress.rule);
        let rules: Vec<_> = declared.chain(&named).map(ToString::to_string).collect();
        let exact = named.into_iter().filter_map(|rule| match rule.host {
            HostPattern::Exact(name) => Some(name),
            HostPattern::Below(_) => None,
        });
        Ok(EffectiveEgress {
            policy: NetworkPolicy::from_list(&rules)?,
            named: exact.collect(),
        })
    }
}

/// The fields of each mapping as the reader knows them, by the name of its definition in the schema, for tests that
/// compare the two.
#[doc(hidden)]
pub fn reader_fields() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut fields = read::reader_fields();
    fields.extend(capabilities::reader_fields());
    fields.extend(settings::reader_fields());
    fields
}
