//! The arguments of one call, and the checks that many functions share.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::call_error::CallError;

/// Ids of chats, messages, agents.
pub(super) const ID_BYTES_MAX: usize = 128;

/// How bytes are written in a JavaScript string.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) enum Encoding {
    #[default]
    #[serde(rename = "utf8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

impl Encoding {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf8",
            Self::Base64 => "base64",
        }
    }

    /// What is no UTF-8 becomes U+FFFD.
    pub(super) fn write(self, bytes: Vec<u8>) -> String {
        match self {
            Self::Base64 => STANDARD.encode(&bytes),
            Self::Utf8 => String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        }
    }
}

/// Taken one by one, in order.
pub(super) struct Arguments {
    /// Of the function.
    path: &'static str,
    left: std::vec::IntoIter<Value>,
}

impl Arguments {
    pub(super) fn read(path: &'static str, json: &str) -> Result<Self, CallError> {
        let values: Vec<Value> = serde_json::from_str(json).map_err(|error| {
            CallError::bad_request(format!("host.{path}: the arguments are no JSON: {error}"))
        })?;
        Ok(Self {
            path,
            left: values.into_iter(),
        })
    }

    /// The error of this call.
    pub(super) fn bad(&self, what: impl std::fmt::Display) -> CallError {
        CallError::bad_request(format!("host.{}: {what}", self.path))
    }

    /// The next argument, which must be there.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, CallError> {
        match self.left.next() {
            None | Some(Value::Null) => Err(self.bad(format_args!("`{name}` is missing"))),
            Some(value) => self.typed(name, value),
        }
    }

    /// The next argument, or the default where it is left out.
    pub(super) fn take_or_default<T: DeserializeOwned + Default>(
        &mut self,
        name: &str,
    ) -> Result<T, CallError> {
        match self.left.next() {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => self.typed(name, value),
        }
    }

    /// A text stands for an object that has it as this one field.
    pub(super) fn take_text_or_object<T: DeserializeOwned>(
        &mut self,
        field: &str,
    ) -> Result<T, CallError> {
        match self.left.next() {
            Some(text @ Value::String(_)) => {
                self.typed(field, super::object([(field, Some(text))]))
            }
            Some(value @ Value::Object(_)) => self.typed("", value),
            _ => Err(self.bad(format_args!("expected a text, or an object with `{field}`"))),
        }
    }

    fn typed<T: DeserializeOwned>(&self, name: &str, value: Value) -> Result<T, CallError> {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let inside = error.path().to_string();
            let place = match (name, inside.as_str()) {
                ("", ".") => return self.bad(error.inner()),
                ("", inside) => inside.to_owned(),
                (name, ".") => name.to_owned(),
                (name, inside) if inside.starts_with('[') => format!("{name}{inside}"),
                (name, inside) if inside.split(['.', '[']).next() == Some(name) => {
                    inside.to_owned()
                }
                (name, inside) => format!("{name}.{inside}"),
            };
            self.bad(format_args!("`{place}`: {}", error.inner()))
        })
    }

    /// There are no more arguments.
    pub(super) fn end(&mut self) -> Result<(), CallError> {
        match self.left.next() {
            None => Ok(()),
            Some(_) => Err(self.bad("it has more arguments than the function takes")),
        }
    }

    pub(super) fn text(
        &self,
        name: &str,
        text: &str,
        min: usize,
        max: usize,
    ) -> Result<(), CallError> {
        let found = text.len();
        match (min..=max).contains(&found) {
            true => Ok(()),
            false => Err(self.bad(format_args!(
                "`{name}` has {found} bytes; expected {min} to {max}"
            ))),
        }
    }

    pub(super) fn id(&self, name: &str, id: &str) -> Result<(), CallError> {
        self.text(name, id, 1, ID_BYTES_MAX)
    }

    pub(super) fn count(
        &self,
        name: &str,
        found: usize,
        min: usize,
        max: usize,
    ) -> Result<(), CallError> {
        match (min..=max).contains(&found) {
            true => Ok(()),
            false => Err(self.bad(format_args!(
                "`{name}` has {found} entries; expected {min} to {max}"
            ))),
        }
    }

    /// A whole number within its range, where it is given.
    pub(super) fn number<N>(
        &self,
        name: &str,
        number: Option<N>,
        min: N,
        max: N,
    ) -> Result<Option<N>, CallError>
    where
        N: PartialOrd + Copy + std::fmt::Display,
    {
        match number {
            Some(number) if !(min..=max).contains(&number) => Err(self.bad(format_args!(
                "`{name}` is {number}; expected {min} to {max}"
            ))),
            number => Ok(number),
        }
    }

    pub(super) fn bytes(
        &self,
        name: &str,
        text: String,
        encoding: Encoding,
        max: usize,
    ) -> Result<Vec<u8>, CallError> {
        let bytes = match encoding {
            Encoding::Utf8 => text.into_bytes(),
            Encoding::Base64 => STANDARD.decode(text).map_err(|error| {
                self.bad(format_args!(
                    "`{name}` is no base64 (with padding, RFC 4648): {error}"
                ))
            })?,
        };
        let found = bytes.len();
        match found <= max {
            true => Ok(bytes),
            false => Err(self.bad(format_args!(
                "`{name}` has {found} bytes; at most {max} are taken"
            ))),
        }
    }
}
