//! SHA-256 over what must not change unseen. Each field is framed by its length, so that no two
//! different inputs can run together into the same bytes.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ids::InvalidId;

/// A SHA-256, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Digests plain bytes, for example a diff.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Digests fields, each framed by its length; `kind` keeps uses apart from one another.
    pub fn of_fields(kind: &str, fields: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for field in std::iter::once(&kind.as_bytes()).chain(fields) {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        Self(hash.finalize().into())
    }

    /// Digests a value in its canonical form: JSON with the keys of every object sorted.
    ///
    /// # Errors
    /// Where the value has no JSON form (for example a map with keys that are not strings).
    pub fn of_value(kind: &str, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        // `Value`'s objects are sorted maps, which is what makes the text canonical.
        let text = serde_json::to_value(value)?.to_string();
        Ok(Self::of_fields(kind, &[text.as_bytes()]))
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId {
            kind: "digest",
            value: text.chars().take(80).collect(),
            expected: "64 lower-case hexadecimal digits",
        };
        let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if text.len() != 64 || !text.bytes().all(hex) {
            return Err(invalid());
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = &text[index * 2..index * 2 + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}
