//! Arguments of a call, read strictly: what is missing or of another type is said by its name.

use bulkhead_engine::{Thrown, Value};
use bytes::Bytes;

use super::{bad_request, text};

pub(super) struct Arguments {
    pub(super) path: &'static str,
    values: Vec<Value>,
}

/// In which form bytes are given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Bytes,
    Hex,
    Base64,
    Base64Url,
    Utf8,
}

impl Arguments {
    pub(super) fn new(path: &'static str, values: Vec<Value>) -> Self {
        Self { path, values }
    }

    /// All that is to be worked on.
    pub(super) fn bytes(&self) -> usize {
        let len = |value: &Value| match value {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Json(json) => json.text.len(),
            _ => 0,
        };
        self.values.iter().map(len).sum()
    }

    pub(super) fn get(&self, index: usize) -> &Value {
        self.values.get(index).unwrap_or(&Value::Undefined)
    }

    /// Bytes, or a text as UTF-8.
    pub(super) fn data(&self, index: usize, name: &str) -> Result<Bytes, Thrown> {
        match self.get(index) {
            Value::Bytes(bytes) => Ok(bytes.clone()),
            Value::String(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            _ => Err(self.wrong(name, "a Uint8Array, or a string, which is taken as UTF-8")),
        }
    }

    pub(super) fn only_bytes(&self, index: usize, name: &str) -> Result<Bytes, Thrown> {
        match self.get(index) {
            Value::Bytes(bytes) => Ok(bytes.clone()),
            _ => Err(self.wrong(
                name,
                "a Uint8Array, such as host.crypto.hex.decode(text) gives",
            )),
        }
    }

    pub(super) fn text(&self, index: usize, name: &str) -> Result<&str, Thrown> {
        match self.get(index) {
            Value::String(text) => Ok(text),
            _ => Err(self.wrong(name, "a string")),
        }
    }

    /// The form that is asked for, or the usual one.
    pub(super) fn form(&self, index: usize, usual: Form) -> Result<Form, Thrown> {
        match self.get(index) {
            Value::Undefined => Ok(usual),
            Value::String(name) => match name.as_str() {
                "bytes" => Ok(Form::Bytes),
                "hex" => Ok(Form::Hex),
                "base64" => Ok(Form::Base64),
                "base64url" => Ok(Form::Base64Url),
                "utf8" => Ok(Form::Utf8),
                _ => Err(self.wrong_form()),
            },
            _ => Err(self.wrong_form()),
        }
    }

    fn wrong_form(&self) -> Thrown {
        self.wrong(
            "encoding",
            "\"bytes\", \"hex\", \"base64\", \"base64url\" or \"utf8\"",
        )
    }

    pub(super) fn wrong(&self, name: &str, wanted: &str) -> Thrown {
        bad_request(format!("host.{}: {name} must be {wanted}", self.path))
    }

    /// Gives bytes back in a form.
    pub(super) fn give(&self, bytes: Vec<u8>, form: Form) -> Result<Value, Thrown> {
        Ok(match form {
            Form::Bytes => Value::Bytes(bytes.into()),
            Form::Hex => text::to_hex(&bytes).into(),
            Form::Base64 => text::to_base64(&bytes).into(),
            Form::Base64Url => text::to_base64url(&bytes).into(),
            Form::Utf8 => match String::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(_) => {
                    let message = format!(
                        "host.{}: the bytes are no UTF-8; ask for \"bytes\" instead",
                        self.path
                    );
                    return Err(super::failed(message));
                }
            },
        })
    }
}
