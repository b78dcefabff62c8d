//! What both `defaults` and a phase can set, and how the two are joined: a phase's own value counts, a
//! mapping of resources, caps or variables is joined entry by entry, and secrets add up, because
//! `defaults` names those that every phase gets (R17).

use std::collections::BTreeMap;

use super::{
    AgentChoice, Workspace,
    node::{Value, cut},
    phase::Scope,
    reader::{Field, Fields, Reader},
};
use crate::{
    gate::GatePolicy,
    ids::SecretName,
    limits::Limits,
    network::{AllowEntry, NetworkPolicy},
    order::Protocol,
    run::RunCaps,
};

pub(crate) const SETTINGS: &[&str] = &[
    "agent",
    "timeout",
    "idle",
    "resources",
    "network",
    "secrets",
    "env",
    "toolchains",
    "gate",
    "caps",
    "retries",
];
pub(crate) const DEFAULTS_ONLY: &[&str] = &["cacheWorkspace"];
pub(crate) const AGENT_FIELDS: &[&str] = &["name", "model", "command", "protocol", "env"];
pub(crate) const RESOURCE_FIELDS: &[&str] = &["cpus", "memory", "pids", "disk", "log"];
pub(crate) const NETWORK_FIELDS: &[&str] = &["allow"];
pub(crate) const PHASE_CAP_FIELDS: &[&str] = &["costUsd", "turns"];
pub(crate) const RUN_CAP_FIELDS: &[&str] = &["costUsd", "turns", "time"];

const WEEK_MS: u64 = 7 * 24 * 3_600_000;
const COST_USD_MAX: u32 = 1_000_000;
const TURNS_MAX: u32 = 1_000_000;

/// What is set in one place; nothing stands for "not here".
#[derive(Default)]
pub(super) struct Settings {
    pub(super) agent: Option<AgentChoice>,
    limits: PartialLimits,
    network: Option<NetworkPolicy>,
    secrets: Vec<SecretName>,
    env: BTreeMap<String, String>,
    toolchains: Option<Vec<String>>,
    gate: Option<GatePolicy>,
    cost_micro_usd: Option<u64>,
    turns: Option<u32>,
    retries: Option<u32>,
}

#[derive(Default)]
pub(crate) struct PartialLimits {
    cpu_milli: Option<u32>,
    memory_bytes: Option<u64>,
    pids: Option<u32>,
    disk_bytes: Option<u64>,
    time_ms: Option<u64>,
    idle_ms: Option<u64>,
    log_bytes: Option<u64>,
}

#[derive(Default)]
pub(super) struct Defaults {
    pub(super) settings: Settings,
    pub(super) workspace: Workspace,
}

pub(super) fn read_defaults(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    scope: &Scope<'_>,
) -> Defaults {
    let names = [SETTINGS, DEFAULTS_ONLY].concat();
    let Some(fields) = reader.fields(field, &names) else {
        return Defaults::default();
    };
    let settings = read(reader, &fields, scope);
    let cache = fields.get("cacheWorkspace");
    let workspace = match cache.and_then(|field| reader.truth(&field)) {
        Some(true) => Workspace::Cached,
        _ => Workspace::Fresh,
    };
    Defaults {
        settings,
        workspace,
    }
}

/// Reads the settings among the fields of `defaults` or of a phase.
pub(super) fn read(reader: &mut Reader<'_>, fields: &Fields<'_>, scope: &Scope<'_>) -> Settings {
    let mut settings = Settings::default();
    if let Some(field) = fields.get("agent") {
        settings.agent = agent(reader, &field, scope);
    }
    settings.limits = limits(reader, fields);
    if let Some(field) = fields.get("network") {
        settings.network = network(reader, &field);
    }
    if let Some(field) = fields.get("secrets") {
        settings.secrets = secrets(reader, &field, scope);
    }
    if let Some(field) = fields.get("env") {
        settings.env = env(reader, &field, scope);
    }
    if let Some(field) = fields.get("toolchains") {
        settings.toolchains = Some(toolchains(reader, &field));
    }
    if let Some(field) = fields.get("gate") {
        settings.gate = super::gate::read(reader, &field);
    }
    if let Some(field) = fields.get("caps") {
        (settings.cost_micro_usd, settings.turns) = phase_caps(reader, &field);
    }
    if let Some(field) = fields.get("retries") {
        settings.retries = reader.whole(&field, 0..=10);
    }
    settings
}

/// The settings of one phase, joined with the defaults.
pub(super) struct Joined {
    pub(super) limits: Limits,
    pub(super) network: NetworkPolicy,
    pub(super) secrets: Vec<SecretName>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) toolchains: Vec<String>,
    pub(super) gate: GatePolicy,
    pub(super) cost_micro_usd: Option<u64>,
    pub(super) turns: Option<u32>,
    pub(super) retries: u32,
}

impl Settings {
    pub(super) fn joined(&self, defaults: &Self) -> Joined {
        let mut secrets = defaults.secrets.clone();
        let own = self
            .secrets
            .iter()
            .filter(|name| !defaults.secrets.contains(name));
        secrets.extend(own.cloned());
        let mut env = defaults.env.clone();
        env.extend(self.env.clone());
        let network = self.network.as_ref().or(defaults.network.as_ref());
        let toolchains = self.toolchains.as_ref().or(defaults.toolchains.as_ref());
        let gate = self.gate.as_ref().or(defaults.gate.as_ref());
        Joined {
            limits: self.limits.over(&defaults.limits),
            network: network.cloned().unwrap_or_default(),
            secrets,
            env,
            toolchains: toolchains.cloned().unwrap_or_default(),
            gate: gate.cloned().unwrap_or_default(),
            cost_micro_usd: self.cost_micro_usd.or(defaults.cost_micro_usd),
            turns: self.turns.or(defaults.turns),
            retries: self.retries.or(defaults.retries).unwrap_or(0),
        }
    }
}

impl PartialLimits {
    pub(crate) fn over(&self, defaults: &Self) -> Limits {
        let base = Limits::default();
        let or = |own: Option<u64>, default: Option<u64>, base| own.or(default).unwrap_or(base);
        Limits {
            cpu_milli: self
                .cpu_milli
                .or(defaults.cpu_milli)
                .unwrap_or(base.cpu_milli),
            memory_bytes: or(self.memory_bytes, defaults.memory_bytes, base.memory_bytes),
            pids: self.pids.or(defaults.pids).unwrap_or(base.pids),
            disk_bytes: or(self.disk_bytes, defaults.disk_bytes, base.disk_bytes),
            time_ms: or(self.time_ms, defaults.time_ms, base.time_ms),
            idle_ms: or(self.idle_ms, defaults.idle_ms, base.idle_ms),
            log_bytes: or(self.log_bytes, defaults.log_bytes, base.log_bytes),
        }
    }
}

pub(crate) fn limits(reader: &mut Reader<'_>, fields: &Fields<'_>) -> PartialLimits {
    let mut limits = PartialLimits::default();
    if let Some(field) = fields.get("timeout") {
        limits.time_ms = reader.duration(&field, 1_000..=WEEK_MS);
    }
    if let Some(field) = fields.get("idle") {
        limits.idle_ms = reader.duration(&field, 1_000..=WEEK_MS);
    }
    let resources = fields.get("resources");
    let resources = resources.and_then(|field| reader.fields(&field, RESOURCE_FIELDS));
    let Some(fields) = resources else {
        return limits;
    };
    if let Some(field) = fields.get("cpus") {
        let milli = reader.decimal(&field, 1_000, 1_024, "a number of CPUs");
        limits.cpu_milli = milli.and_then(|milli| u32::try_from(milli).ok());
    }
    if let Some(field) = fields.get("memory") {
        limits.memory_bytes = reader.size(&field, 16 << 20..=1 << 44);
    }
    if let Some(field) = fields.get("pids") {
        limits.pids = reader.whole(&field, 8..=1_000_000);
    }
    if let Some(field) = fields.get("disk") {
        limits.disk_bytes = reader.size(&field, 16 << 20..=1 << 44);
    }
    if let Some(field) = fields.get("log") {
        limits.log_bytes = reader.size(&field, 64 << 10..=10 << 30);
    }
    limits
}

/// One entry that cannot be read spoils the list: a policy is never narrower or wider than written.
pub(crate) fn network(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<NetworkPolicy> {
    let fields = reader.fields(field, NETWORK_FIELDS)?;
    let allow = reader.required(&fields, "allow")?;
    let mut entries = Vec::new();
    for item in reader.list(&allow) {
        let text = reader.line(&item)?;
        match text.parse::<AllowEntry>() {
            Ok(entry) => entries.push(entry),
            Err(error) => reader.problem(&item, error.to_string()),
        }
    }
    match NetworkPolicy::from_entries(&entries) {
        Ok(policy) => Some(policy),
        Err(error) => {
            reader.problem(&allow, error.to_string());
            None
        }
    }
}

fn secrets(reader: &mut Reader<'_>, field: &Field<'_>, scope: &Scope<'_>) -> Vec<SecretName> {
    let declared: Vec<_> = scope.secrets.iter().map(SecretName::as_str).collect();
    let mut names: Vec<SecretName> = Vec::new();
    for item in reader.list(field) {
        let Some(name) = reader.name::<SecretName>(&item) else {
            continue;
        };
        if !scope.secrets.contains(&name) {
            reader.unknown(&item, "secret", name.as_str(), &declared);
        } else if names.contains(&name) {
            reader.problem(&item, "it is listed twice");
        } else {
            names.push(name);
        }
    }
    names
}

pub(crate) fn env(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    scope: &Scope<'_>,
) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for (key, entry) in reader.entries(field) {
        let name = &key.name;
        let well_formed = name.len() <= 128
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !well_formed {
            reader.problem(&entry, format!("{:?} is not a variable's name", cut(name)));
        } else if name.starts_with("BULKHEAD_") || name.starts_with("GIT_CONFIG_") {
            reader.problem(&entry, "variables of this name are set by Bulkhead");
        } else if scope.secrets.iter().any(|secret| secret.as_str() == name) {
            let remedy = "name it under `secrets`, or call the variable otherwise";
            reader.problem(&entry, format!("a declared secret has this name: {remedy}"));
        }
        if let Some(value) = reader.value(&entry) {
            variables.insert(name.clone(), value);
        }
    }
    variables
}

fn toolchains(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for item in reader.list(field) {
        let Some(name) = reader.line(&item) else {
            continue;
        };
        let known = reader.known.toolchains.as_deref();
        reader.offered(&item, "toolchain", &name, known);
        names.push(name);
    }
    names
}

pub(crate) fn agent(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    scope: &Scope<'_>,
) -> Option<AgentChoice> {
    let named = |name| AgentChoice {
        name,
        model: None,
        command: None,
        protocol: None,
        env: BTreeMap::new(),
    };
    if let Value::Text(_) = field.node.value {
        let name = reader.line(field)?;
        let known = reader.known.agents.as_deref();
        reader.offered(field, "agent", &name, known);
        return Some(named(name));
    }
    let fields = reader.fields(field, AGENT_FIELDS)?;
    let name_field = reader.required(&fields, "name")?;
    let mut choice = named(reader.line(&name_field)?);
    if let Some(field) = fields.get("model") {
        choice.model = reader.line(&field);
    }
    match fields.get("command") {
        Some(field) => choice.command = command(reader, &field),
        None => {
            let known = reader.known.agents.as_deref();
            reader.offered(&name_field, "agent", &choice.name, known);
        }
    }
    if let Some(field) = fields.get("protocol") {
        const PROTOCOLS: [(&str, Protocol); 4] = [
            ("acp", Protocol::Acp),
            ("claude-stream-json", Protocol::ClaudeStreamJson),
            ("codex-json", Protocol::CodexJson),
            ("plain", Protocol::Plain),
        ];
        choice.protocol = reader.choice(&field, "protocol", &PROTOCOLS);
        if choice.command.is_none() && fields.get("command").is_none() {
            reader.problem(&field, "it needs `command` beside it");
        }
    }
    if let Some(field) = fields.get("env") {
        choice.env = env(reader, &field, scope);
    }
    Some(choice)
}

pub(crate) fn command(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Vec<String>> {
    let items = reader.list(field);
    if items.is_empty() && matches!(field.node.value, Value::List(_)) {
        reader.problem(field, "expected a program and its arguments");
    }
    let words: Option<Vec<_>> = items.iter().map(|item| reader.value(item)).collect();
    words.filter(|words| !words.is_empty())
}

pub(crate) fn phase_caps(reader: &mut Reader<'_>, field: &Field<'_>) -> (Option<u64>, Option<u32>) {
    let Some(fields) = reader.fields(field, PHASE_CAP_FIELDS) else {
        return (None, None);
    };
    let cost = fields.get("costUsd");
    let cost = cost.and_then(|field| cost_micro_usd(reader, &field));
    let turns = fields.get("turns");
    let turns = turns.and_then(|field| reader.whole(&field, 1..=TURNS_MAX));
    (cost, turns)
}

pub(super) fn run_caps(reader: &mut Reader<'_>, field: &Field<'_>) -> RunCaps {
    let Some(fields) = reader.fields(field, RUN_CAP_FIELDS) else {
        return RunCaps::default();
    };
    let cost = fields.get("costUsd");
    let turns = fields.get("turns");
    let time = fields.get("time");
    RunCaps {
        cost_micro_usd: cost.and_then(|field| cost_micro_usd(reader, &field)),
        turns: turns
            .and_then(|field| reader.whole(&field, 1..=TURNS_MAX))
            .map(u64::from),
        time_ms: time
            .and_then(|field| reader.duration(&field, 1_000..=super::units::DURATION_MS_MAX)),
    }
}

fn cost_micro_usd(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<u64> {
    reader.decimal(field, 1_000_000, COST_USD_MAX, "an amount in US dollars")
}
