//! What a user sets: declared in the manifest, checked when it is given.

use std::{collections::BTreeMap, fmt};

use serde_json::{Map, Value as Json};

use super::read::{check_word, prose};
use crate::{
    network::EgressRule,
    workflow::{
        error::nearest,
        reader::{Field, Fields, Reader},
    },
};

#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub kind: SettingKind,
    pub label: Option<String>,
    pub description: Option<String>,
    pub required: bool,
    pub default: Option<Json>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SettingKind {
    Text,
    Number {
        min: Option<f64>,
        max: Option<f64>,
    },
    Boolean,
    /// One of these.
    Choice(Vec<String>),
    /// Hosts that the plugin may reach besides those of the manifest, as its installer says.
    Hosts,
}

#[derive(Clone, Copy)]
enum Type {
    Text,
    Number,
    Boolean,
    Choice,
    Hosts,
}

const TYPES: &[(&str, Type)] = &[
    ("text", Type::Text),
    ("number", Type::Number),
    ("boolean", Type::Boolean),
    ("choice", Type::Choice),
    ("hosts", Type::Hosts),
];
const FIELDS: &[&str] = &[
    "type",
    "label",
    "description",
    "required",
    "default",
    "min",
    "max",
    "options",
];
const TEXT_BYTES_MAX: usize = 16 << 10;
const HOSTS_MAX: usize = 32;

pub(super) fn reader_fields() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![("Setting", FIELDS.to_vec())]
}

pub(super) fn read(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    value: &Json,
) -> BTreeMap<String, Setting> {
    let mut settings = BTreeMap::new();
    for (key, item) in reader.entries(field) {
        check_word(reader, &item, key.place, &key.name, "a setting's name");
        if let Some(setting) = one(reader, &item, &value[&key.name]) {
            settings.insert(key.name.clone(), setting);
        }
    }
    settings
}

fn one(reader: &mut Reader<'_>, field: &Field<'_>, value: &Json) -> Option<Setting> {
    let fields = reader.fields(field, FIELDS)?;
    let kind = reader.required(&fields, "type");
    let kind = kind.and_then(|field| reader.choice(&field, "type of setting", TYPES));
    let label = fields.get("label").and_then(|field| reader.line(&field));
    let description = fields
        .get("description")
        .and_then(|field| prose(reader, &field));
    let required = fields
        .get("required")
        .and_then(|field| reader.truth(&field));
    let kind = kind_of(reader, &fields, kind?, value)?;
    let default = value.get("default").cloned();
    if let (Some(default), Some(field)) = (&default, fields.get("default"))
        && let Err(expected) = check(&kind, default)
    {
        reader.expected(&field, &expected);
    }
    Some(Setting {
        kind,
        label,
        description,
        required: required.unwrap_or_default(),
        default,
    })
}

fn kind_of(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    kind: Type,
    value: &Json,
) -> Option<SettingKind> {
    for (name, only) in [("min", "number"), ("max", "number"), ("options", "choice")] {
        let is_right = matches!(
            (only, kind),
            ("number", Type::Number) | ("choice", Type::Choice)
        );
        if let (Some(field), false) = (fields.get(name), is_right) {
            reader.problem(
                &field,
                format!("only a setting of the type `{only}` has `{name}`"),
            );
        }
    }
    Some(match kind {
        Type::Text => SettingKind::Text,
        Type::Boolean => SettingKind::Boolean,
        Type::Hosts => SettingKind::Hosts,
        Type::Number => number(reader, fields, value),
        Type::Choice => {
            let field = reader.required(fields, "options")?;
            let items = reader.list(&field);
            let options: Vec<_> = items.iter().filter_map(|item| reader.line(item)).collect();
            if options.is_empty() {
                reader.problem(&field, "expected at least one option");
            }
            SettingKind::Choice(options)
        }
    })
}

fn number(reader: &mut Reader<'_>, fields: &Fields<'_>, value: &Json) -> SettingKind {
    let mut bound = |name: &str| {
        let (field, bound) = (fields.get(name)?, value.get(name)?);
        let number = bound.as_f64();
        if number.is_none() {
            reader.expected(&field, "a number");
        }
        number
    };
    let (min, max) = (bound("min"), bound("max"));
    if let (Some(min), Some(max), Some(field)) = (min, max, fields.get("max"))
        && min > max
    {
        reader.problem(&field, format!("`max` is below `min`, which is {min}"));
    }
    SettingKind::Number { min, max }
}

/// What was expected, where the value is not of the kind.
fn check(kind: &SettingKind, value: &Json) -> Result<(), String> {
    let is_good = match (kind, value) {
        (SettingKind::Text, Json::String(text)) => text.len() <= TEXT_BYTES_MAX,
        (SettingKind::Boolean, Json::Bool(_)) => true,
        (SettingKind::Number { min, max }, Json::Number(number)) => {
            number.as_f64().is_some_and(|number| {
                min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max)
            })
        }
        (SettingKind::Choice(options), Json::String(text)) => options.contains(text),
        (SettingKind::Hosts, Json::Array(hosts)) if hosts.len() <= HOSTS_MAX => {
            return hosts.iter().try_for_each(host);
        }
        _ => false,
    };
    match is_good {
        true => Ok(()),
        false => Err(expected(kind)),
    }
}

fn host(value: &Json) -> Result<(), String> {
    let text = value
        .as_str()
        .ok_or_else(|| expected(&SettingKind::Hosts))?;
    let rule = text.parse::<EgressRule>();
    rule.map(|_| ())
        .map_err(|error| format!("hosts, but {error}"))
}

fn expected(kind: &SettingKind) -> String {
    match kind {
        SettingKind::Text => format!("text of at most {TEXT_BYTES_MAX} bytes"),
        SettingKind::Boolean => "true or false".to_owned(),
        SettingKind::Choice(options) => format!("one of {}", options.join(", ")),
        SettingKind::Hosts => {
            format!("a list of at most {HOSTS_MAX} hosts such as \"api.example.com:8443\"")
        }
        SettingKind::Number { min, max } => match (min, max) {
            (Some(min), Some(max)) => format!("a number from {min} to {max}"),
            (Some(min), None) => format!("a number of at least {min}"),
            (None, Some(max)) => format!("a number of at most {max}"),
            (None, None) => "a number".to_owned(),
        },
    }
}

/// Every setting that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError(pub Vec<String>);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for SettingsError {}

pub(super) fn complete(
    declared: &BTreeMap<String, Setting>,
    given: &Map<String, Json>,
) -> Result<Map<String, Json>, SettingsError> {
    let (mut complete, mut problems) = (Map::new(), Vec::new());
    for name in given.keys().filter(|name| !declared.contains_key(*name)) {
        let nearest = nearest(name, declared.keys().map(String::as_str));
        let hint = nearest.map_or_else(String::new, |nearest| {
            format!("; did you mean `{nearest}`?")
        });
        problems.push(format!(
            "settings.{name}: the manifest declares no such setting{hint}"
        ));
    }
    for (name, setting) in declared {
        match given
            .get(name)
            .filter(|value| !value.is_null())
            .or(setting.default.as_ref())
        {
            Some(value) => match check(&setting.kind, value) {
                Ok(()) => {
                    complete.insert(name.clone(), value.clone());
                }
                Err(expected) => problems.push(format!("settings.{name}: expected {expected}")),
            },
            None if setting.required => {
                problems.push(format!(
                    "settings.{name} is missing: expected {}",
                    expected(&setting.kind)
                ));
            }
            None => {}
        }
    }
    match problems.is_empty() {
        true => Ok(complete),
        false => Err(SettingsError(problems)),
    }
}

/// The rules of all `hosts` settings.
pub(super) fn hosts(
    declared: &BTreeMap<String, Setting>,
    complete: &Map<String, Json>,
) -> Vec<EgressRule> {
    let lists = declared
        .iter()
        .filter(|(_, setting)| setting.kind == SettingKind::Hosts)
        .filter_map(|(name, _)| complete.get(name)?.as_array());
    lists
        .flatten()
        .filter_map(|host| host.as_str()?.parse().ok())
        .collect()
}
