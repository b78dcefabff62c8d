//! What a sandbox may reach: deny by default, and an allow-list of names and ports (R6, P9, D10).
//!
//! An entry of an allow-list is one string:
//!
//! | entry | reaches |
//! |---|---|
//! | `api.example.com` | that name, port 443 |
//! | `api.example.com:8443` | that name, that port, and no other |
//! | `*.example.com` | every name below `example.com`, one or more labels deep, port 443; not `example.com` itself |
//! | `preset:npm` | what the package registry of that name needs ([`PRESETS`]) |
//!
//! Names are compared as ASCII (IDNA), in lower case, with one trailing dot stripped, label by label.
//! The very same reading ([`Host::parse`]) is used for what a request asks for, so that a rule and a
//! request can never disagree on what a name means. An empty list reaches nothing (case 50).

mod host;
mod preset;
mod rule;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use host::{Host, HostError, HostName};
pub use preset::{PRESETS, Preset, UnknownPreset, preset};
pub use rule::{DEFAULT_PORT, EgressRule, HostPattern, RuleError, RuleProblem};

/// The most rules that one policy holds, presets expanded.
pub const MAX_RULES: usize = 1_024;

/// Deny by default: only what a rule names is reachable. The default policy reaches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkPolicy {
    /// The rules, in the order in which they were written, without repetitions.
    pub allow: Vec<EgressRule>,
}

impl NetworkPolicy {
    /// The policy that reaches nothing.
    pub const fn deny_all() -> Self {
        Self { allow: Vec::new() }
    }

    /// Reads a list as people write it. The error names the entry by its place, counted from 0.
    pub fn from_list<S: AsRef<str>>(
        list: impl IntoIterator<Item = S>,
    ) -> Result<Self, NetworkError> {
        let entries: Result<Vec<_>, _> = list
            .into_iter()
            .enumerate()
            .map(|(index, text)| {
                let parsed: Result<AllowEntry, _> = text.as_ref().parse();
                parsed.map_err(|problem| NetworkError::Entry { index, problem })
            })
            .collect();
        Self::from_entries(&entries?)
    }

    /// Joins entries that were read one by one; presets become their rules.
    pub fn from_entries(entries: &[AllowEntry]) -> Result<Self, NetworkError> {
        let mut policy = Self::deny_all();
        for rule in entries.iter().flat_map(AllowEntry::rules) {
            if !policy.allow.contains(&rule) {
                policy.allow.push(rule);
            }
            if policy.allow.len() > MAX_RULES {
                return Err(NetworkError::TooMany);
            }
        }
        Ok(policy)
    }

    /// The rule that lets this name and port through, if there is one.
    pub fn rule_for(&self, host: &HostName, port: u16) -> Option<&EgressRule> {
        self.allow
            .iter()
            .find(|rule| rule.port == port && rule.host.matches(host))
    }

    /// The ports that some rule opens for this name: empty where no rule names it.
    pub fn ports_for(&self, host: &HostName) -> Vec<u16> {
        self.allow
            .iter()
            .filter(|rule| rule.host.matches(host))
            .map(|rule| rule.port)
            .collect()
    }
}

/// A list did not make a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// `problem` is part of the sentence, not a source: it is the sentence.
    #[error("entry {} of the allow-list: {problem}", index + 1)]
    Entry { index: usize, problem: EntryError },
    #[error(
        "the allow-list has more than {MAX_RULES} rules: name a common parent with `*.`, or fewer hosts"
    )]
    TooMany,
}

/// One entry of an allow-list, as a workflow writes it: a rule or a preset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum AllowEntry {
    Rule(EgressRule),
    Preset(&'static Preset),
}

impl AllowEntry {
    /// The rules that this entry stands for.
    pub fn rules(&self) -> Vec<EgressRule> {
        match self {
            Self::Rule(rule) => vec![rule.clone()],
            Self::Preset(preset) => preset.rules(),
        }
    }
}

/// An entry was neither a rule nor a known preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Preset(#[from] UnknownPreset),
}

impl std::str::FromStr for AllowEntry {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Self, EntryError> {
        match text.strip_prefix("preset:") {
            Some(name) => Ok(Self::Preset(preset(name)?)),
            None => Ok(Self::Rule(text.parse()?)),
        }
    }
}

impl TryFrom<String> for AllowEntry {
    type Error = EntryError;

    fn try_from(text: String) -> Result<Self, EntryError> {
        text.parse()
    }
}

impl From<AllowEntry> for String {
    fn from(entry: AllowEntry) -> Self {
        entry.to_string()
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Preset(preset) => write!(f, "preset:{}", preset.name),
        }
    }
}

#[cfg(test)]
mod tests;
