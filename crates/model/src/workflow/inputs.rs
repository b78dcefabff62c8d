//! What whoever starts a run may say, and checking what they said.

use std::collections::BTreeMap;

use super::{
    Input, Presence, Workflow,
    error::nearest,
    reader::{Field, Reader},
};

/// The longest value of one input.
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// The values of all inputs together: they are also variables of the phase's environment, which the
/// kernel bounds.
pub const INPUTS_BYTES_MAX: usize = 512 << 10;

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
    #[error("the inputs have {size} bytes together; at most {INPUTS_BYTES_MAX} are taken")]
    TooMuch { size: usize },
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
            match Self::value_of(name, input, given.get(name)) {
                Ok(value) => {
                    values.insert(name.clone(), value);
                }
                Err(error) => errors.push(error),
            }
        }
        let size = values.values().map(String::len).sum();
        if size > INPUTS_BYTES_MAX {
            errors.push(InputError::TooMuch { size });
        }
        if errors.is_empty() {
            return Ok(values);
        }
        Err(errors)
    }

    /// The value of one input, if it is one.
    fn value_of(name: &str, input: &Input, given: Option<&String>) -> Result<String, InputError> {
        let name = name.to_owned();
        match given.or(input.default.as_ref()) {
            Some(value) if value.len() > INPUT_BYTES_MAX => {
                let size = value.len();
                Err(InputError::TooLong { name, size })
            }
            Some(value) if value.contains('\0') => Err(InputError::Nul { name }),
            Some(value) => Ok(value.clone()),
            None if input.presence == Presence::Optional => Ok(String::new()),
            None => {
                let description = input.description.clone();
                Err(InputError::Missing { name, description })
            }
        }
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
