//! Reads the manifest's own fields.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{Egress, Manifest, Permission, Secret, capabilities, json, settings};
use crate::{
    network::EgressRule,
    workflow::{
        Known, WorkflowError,
        error::Place,
        node::Value,
        reader::{Field, Reader},
    },
};

const FIELDS: &[&str] = &[
    "$schema",
    "name",
    "version",
    "description",
    "entry",
    "capabilities",
    "permissions",
    "egress",
    "settings",
    "secrets",
];
const EGRESS_FIELDS: &[&str] = &["host", "reason"];
const SECRET_FIELDS: &[&str] = &["label", "description", "required"];
const NAME_MAX: usize = 64;
const DESCRIPTION_MAX: usize = 1_000;
/// What the entry's name may end in.
const ENDINGS: [&str; 4] = [".js", ".mjs", ".ts", ".mts"];

pub(super) fn reader_fields() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("", FIELDS.to_vec()),
        ("EgressMapping", EGRESS_FIELDS.to_vec()),
        ("Secret", SECRET_FIELDS.to_vec()),
    ]
}

pub(super) fn read(file: &str, text: &str) -> Result<Manifest, WorkflowError> {
    let known = Known::default();
    let mut reader = Reader::new(text, &known);
    let read = match json::parse(text) {
        Ok((tree, value)) => manifest(&mut reader, &Field::root(&tree), &value),
        Err(problem) => {
            reader.problems.push(problem);
            None
        }
    };
    reader.finish(file, read)
}

fn manifest(reader: &mut Reader<'_>, root: &Field<'_>, value: &Json) -> Option<Manifest> {
    let fields = reader.fields(root, FIELDS)?;
    if let Some(field) = fields.get("$schema") {
        reader.text(&field);
    }
    let name = reader.required(&fields, "name");
    let name = name.and_then(|field| plugin_name(reader, &field));
    let version = reader.required(&fields, "version");
    let version = version.and_then(|field| version_of(reader, &field));
    let description = fields
        .get("description")
        .and_then(|field| prose(reader, &field));
    let entry = reader.required(&fields, "entry");
    let entry = entry.and_then(|field| entry_of(reader, &field));
    let capabilities = reader.required(&fields, "capabilities");
    let capabilities =
        capabilities.and_then(|field| capabilities::read(reader, &field, &value["capabilities"]));
    let permissions = fields.get("permissions");
    let permissions = permissions.map_or_else(Vec::new, |field| permissions_of(reader, &field));
    let egress = fields.get("egress");
    let egress = egress.map_or_else(Vec::new, |field| egress_of(reader, &field));
    let settings = fields.get("settings");
    let settings = settings.map_or_else(BTreeMap::new, |field| {
        settings::read(reader, &field, &value["settings"])
    });
    let secrets = fields.get("secrets");
    let secrets = secrets.map_or_else(BTreeMap::new, |field| secrets_of(reader, &field));
    if let Some(capabilities) = &capabilities {
        needs(reader, root, capabilities, &permissions);
    }
    Some(Manifest {
        name: name?,
        version: version?,
        description,
        entry: entry?,
        capabilities: capabilities?,
        permissions,
        egress,
        settings,
        secrets,
    })
}

/// Ssh hooks that may run nothing would fail at their first command.
fn needs(
    reader: &mut Reader<'_>,
    root: &Field<'_>,
    capabilities: &super::Capabilities,
    held: &[Permission],
) {
    if !capabilities.ssh_hooks.is_empty() && !held.contains(&Permission::Ssh) {
        let name = Permission::Ssh.name();
        reader.problem(
            root,
            format!("`sshHooks` needs the permission `{name}`: add it to `permissions`"),
        );
    }
}

/// Text of some length, with line breaks.
pub(super) fn prose(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let text = reader.text(field)?;
    if text.len() > DESCRIPTION_MAX {
        reader.problem(
            field,
            format!(
                "expected at most {DESCRIPTION_MAX} bytes, found {}",
                text.len()
            ),
        );
        return None;
    }
    Some(text)
}

fn plugin_name(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let text = reader.text(field)?;
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_good = text.len() <= NAME_MAX
        && text.chars().all(is_inner)
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-');
    if !is_good {
        let expected = format!(
            "a plugin's name: 1 to {NAME_MAX} of a-z, 0-9 and `-`, beginning with a letter"
        );
        reader.expected(field, &expected);
    }
    is_good.then_some(text)
}

/// Three whole numbers, and a pre-release (semver.org, without build metadata).
fn version_of(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let text = reader.text(field)?;
    let (numbers, pre) = match text.split_once('-') {
        Some((numbers, pre)) => (numbers, Some(pre)),
        None => (text.as_str(), None),
    };
    let numbers: Vec<_> = numbers.split('.').collect();
    let is_number = |part: &&str| {
        let is_digits =
            !part.is_empty() && part.len() <= 9 && part.bytes().all(|b| b.is_ascii_digit());
        is_digits && (*part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_good = text.len() <= 64
        && numbers.len() == 3
        && numbers.iter().all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(is_word));
    if !is_good {
        reader.expected(field, "a version such as 1.2.0 or 2.0.0-beta.1");
    }
    is_good.then_some(text)
}

fn entry_of(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let text = reader.line(field)?;
    let parts: Vec<_> = text.split('/').collect();
    let is_outside =
        parts.iter().any(|part| matches!(*part, "" | "." | "..")) || text.contains('\\');
    if is_outside {
        reader.expected(
            field,
            "a path below the manifest, with `/` between its parts and without `.` or `..`",
        );
        return None;
    }
    if !ENDINGS.iter().any(|ending| text.ends_with(ending)) {
        reader.expected(
            field,
            &format!("a file that ends in {}", ENDINGS.join(", ")),
        );
        return None;
    }
    Some(text)
}

fn permissions_of(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<Permission> {
    let choices = Permission::ALL.map(|permission| (permission.name(), permission));
    let mut permissions = Vec::new();
    for item in reader.list(field) {
        match reader.choice(&item, "permission", &choices) {
            Some(permission) if permissions.contains(&permission) => {
                reader.problem(&item, "it is listed twice")
            }
            permission => permissions.extend(permission),
        }
    }
    permissions
}

fn egress_of(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<Egress> {
    let mut egress: Vec<Egress> = Vec::new();
    for item in reader.list(field) {
        match one_egress(reader, &item) {
            Some(one) if egress.iter().any(|other| other.rule == one.rule) => {
                reader.problem(&item, "it is listed twice");
            }
            one => egress.extend(one),
        }
    }
    egress
}

fn one_egress(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Egress> {
    if matches!(field.node.value, Value::Text(_)) {
        return rule(reader, field).map(|rule| Egress { rule, reason: None });
    }
    let fields = reader.fields(field, EGRESS_FIELDS)?;
    let host = reader.required(&fields, "host");
    let host = host.and_then(|field| rule(reader, &field));
    let reason = fields.get("reason").and_then(|field| reader.line(&field));
    host.map(|rule| Egress { rule, reason })
}

fn rule(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<EgressRule> {
    let text = reader.text(field)?;
    match text.parse::<EgressRule>() {
        Ok(rule) => Some(rule),
        Err(error) => {
            reader.problem(field, error.to_string());
            None
        }
    }
}

fn secrets_of(reader: &mut Reader<'_>, field: &Field<'_>) -> BTreeMap<String, Secret> {
    let mut secrets = BTreeMap::new();
    for (key, item) in reader.entries(field) {
        check_word(reader, &item, key.place, &key.name, "a secret's name");
        let Some(fields) = reader.fields(&item, SECRET_FIELDS) else {
            continue;
        };
        let secret = Secret {
            label: fields.get("label").and_then(|field| reader.line(&field)),
            description: fields
                .get("description")
                .and_then(|field| prose(reader, &field)),
            required: fields
                .get("required")
                .and_then(|field| reader.truth(&field))
                .unwrap_or(true),
        };
        secrets.insert(key.name.clone(), secret);
    }
    secrets
}

/// A name that code will write: a letter, then letters, digits and `_`.
pub(super) fn check_word(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    place: Place,
    word: &str,
    what: &str,
) {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_good = word.len() <= NAME_MAX
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(is_inner);
    if !is_good {
        let message = format!(
            "{word:?} is not {what}: expected 1 to {NAME_MAX} letters, digits and `_`, beginning with a letter"
        );
        let problem = crate::workflow::Problem::new(place, &field.path, message);
        reader.problems.push(problem);
    }
}
