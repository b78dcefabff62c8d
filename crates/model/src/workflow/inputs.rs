//! What whoever starts a run may say, and checking what they said.

use std::collections::BTreeMap;

use super::{
    Input, Presence, Workflow,
    error::nearest,
    reader::{Field, Reader},
};

/// The longest value of one input.
pub const INPUT_BYTES_MAX: usize = 64 << 10;

pub(crate) const FIELDS: &[&str] = &["description", "default", "required"];

/// Why a run cannot start with what was said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    #[error("the workflow has no input `{name}`{}", hint(.nearest))]
    Unknown {
        name: String,
        nearest: Option<String>,
    },
    #[error("the workflow needs the input `{name}`{}", about(.description))]
    Missing {
        name: String,
        description: Option<String>,
    },
    #[error("the input `{name}` has {size} bytes; at most {INPUT_BYTES_MAX} are taken")]
    TooLong { name: String, size: usize },
    #[error("the input `{name}` holds a NUL character")]
    Nul { name: String },
}

fn hint(nearest: &Option<String>) -> String {
    let hint = |name| format!("; did you mean `{name}`?");
    nearest.as_ref().map(hint).unwrap_or_default()
}

fn about(description: &Option<String>) -> String {
    let about = |words| format!(" ({words})");
    description.as_ref().map(about).unwrap_or_default()
}

impl Workflow {
    /// The value of every declared input, from what was said and the defaults.
    ///
    /// # Errors
    /// With every problem: unknown names, missing required inputs, values that are too long.
    pub fn resolve_inputs(
        &self,
        given: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, Vec<InputError>> {
        let unknown = given.keys().filter(|name| !self.inputs.contains_key(*name));
        let mut errors: Vec<_> = unknown
            .map(|name| {
                let declared = self.inputs.keys().map(String::as_str);
                InputError::Unknown {
                    name: name.clone(),
                    nearest: nearest(name, declared).map(str::to_owned),
                }
            })
            .collect();
        let mut values = BTreeMap::new();
        for (name, input) in &self.inputs {
            let name = name.clone();
            match (given.get(&name).or(input.default.as_ref()), input.presence) {
                (Some(value), _) if value.len() > INPUT_BYTES_MAX => {
                    let size = value.len();
                    errors.push(InputError::TooLong { name, size });
                }
                (Some(value), _) if value.contains('\0') => errors.push(InputError::Nul { name }),
                (Some(value), _) => {
                    values.insert(name, value.clone());
                }
                (None, Presence::Optional) => {
                    values.insert(name, String::new());
                }
                (None, Presence::Required) => {
                    let description = input.description.clone();
                    errors.push(InputError::Missing { name, description });
                }
            }
        }
        if errors.is_empty() {
            return Ok(values);
        }
        Err(errors)
    }
}

/// The environment variable in which commands and agents find an input.
pub(crate) fn variable(name: &str) -> String {
    format!("BULKHEAD_INPUT_{}", name.to_ascii_uppercase())
}

pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> BTreeMap<String, Input> {
    let mut inputs: BTreeMap<String, Input> = BTreeMap::new();
    for (key, entry) in reader.entries(field) {
        let name = &key.name;
        let same = |other: &&String| *other != name && variable(other) == variable(name);
        if !is_name(name) {
            let form = "1 to 64 of letters, digits and `_`, beginning with a letter";
            reader.problem(&entry, format!("not an input's name: expected {form}"));
        } else if let Some(other) = inputs.keys().find(same) {
            let message = format!("it differs from `{other}` only in upper and lower case");
            reader.problem(&entry, message);
        }
        if let Some(input) = read_one(reader, &entry) {
            inputs.insert(name.clone(), input);
        }
    }
    inputs
}

fn read_one(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Input> {
    let fields = reader.fields(field, FIELDS)?;
    let description = fields.get("description");
    let description = description.and_then(|field| reader.text(&field));
    let default = fields.get("default");
    let value = default.as_ref().and_then(|field| reader.value(field));
    let required = fields.get("required");
    let presence = match required.as_ref().and_then(|field| reader.truth(field)) {
        Some(true) => Presence::Required,
        Some(false) | None => Presence::Optional,
    };
    if let (Presence::Required, Some(default)) = (presence, &default) {
        reader.problem(default, "a required input has no use for a default");
    }
    Some(Input {
        description,
        default: value,
        presence,
    })
}

fn is_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
