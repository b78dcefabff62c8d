//! Object ids and ref names as types: what was parsed once cannot later be an option, a path or a pathspec.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The prefix below which every run's own branch lives by default. Branches here are hidden from other runs.
pub const RUN_BRANCHES: &str = "refs/heads/bulkhead/";

/// A text was not an object id or not a ref name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not {expected}")]
pub struct InvalidName {
    pub value: String,
    pub expected: &'static str,
}

/// The id of an object: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id that stands for "no object" in ref updates.
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'0')
    }

    pub(crate) fn zero_like(other: &Self) -> Self {
        Self("0".repeat(other.0.len()))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidName> {
        String::from_utf8_lossy(bytes).parse()
    }
}

impl FromStr for Oid {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if matches!(text.len(), 40 | 64) && text.bytes().all(hex) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidName {
            value: shortened(text),
            expected: "an object id of 40 or 64 lower-case hexadecimal digits",
        })
    }
}

/// A full ref name below `refs/`, in the form that `git check-ref-format` accepts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RefName(String);

impl RefName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The branch's short name, where this is a branch.
    pub fn branch(&self) -> Option<&str> {
        self.0.strip_prefix("refs/heads/")
    }

    /// `refs/heads/NAME` for a branch that a person named, in either form.
    pub fn from_branch(name: &str) -> Result<Self, InvalidName> {
        if name.starts_with("refs/") {
            return name.parse();
        }
        format!("refs/heads/{name}").parse()
    }
}

impl FromStr for RefName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let whole = text.len() <= 1024 && text.starts_with("refs/") && !text.contains("@{");
        let parts_ok = text.split('/').count() > 2 && text.split('/').all(is_ref_part);
        if whole && parts_ok {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidName {
            value: shortened(text),
            expected: "a full ref name such as refs/heads/main",
        })
    }
}

fn is_ref_part(part: &str) -> bool {
    let bad = |c: char| c <= ' ' || c == '\x7f' || "~^:?*[\\".contains(c);
    !part.is_empty()
        && !part.starts_with('.')
        && !part.starts_with('-')
        && !part.ends_with('.')
        && !part.ends_with(".lock")
        && !part.contains("..")
        && !part.contains(bad)
}

fn shortened(text: &str) -> String {
    text.chars().take(120).collect()
}

macro_rules! text_type {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

text_type!(Oid);
text_type!(RefName);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
    use super::*;

    #[test]
    fn ref_names_that_git_or_a_shell_could_misread_are_refused() {
        for bad in [
            "main",
            "refs/heads/",
            "refs/heads/-x",
            "refs/heads/a..b",
            "refs/heads/a b",
            "refs/heads/a\n",
            "refs/heads/.a",
            "refs/heads/a.lock",
            "refs/heads/a@{1}",
            "refs/heads/a:b",
            "refs//a",
            "refs/heads/a\0",
        ] {
            assert!(bad.parse::<RefName>().is_err(), "{bad:?} was accepted");
        }
        let branch = RefName::from_branch("bulkhead/run-1").unwrap();
        assert_eq!(branch.as_str(), "refs/heads/bulkhead/run-1");
        assert_eq!(branch.branch(), Some("bulkhead/run-1"));
    }

    #[test]
    fn object_ids_are_whole_and_lower_case() {
        assert!("a".repeat(40).parse::<Oid>().is_ok());
        assert!("a".repeat(64).parse::<Oid>().is_ok());
        for bad in ["", "HEAD", "--help", &"a".repeat(39), &"A".repeat(40)] {
            assert!(bad.parse::<Oid>().is_err());
        }
    }
}
