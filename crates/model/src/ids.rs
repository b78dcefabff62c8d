//! Every id is a type of its own, so that one can never be passed for another.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A name or id was not of its type's form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a {kind}: {expected}")]
pub struct InvalidId {
    pub kind: &'static str,
    pub value: String,
    pub expected: &'static str,
}

/// An id that is a UUID: made at the edge (version 7, so ids sort by time) and handed in.
macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.parse().map(Self).map_err(|_| InvalidId {
                    kind: $kind,
                    value: text.to_owned(),
                    expected: "a UUID such as 0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
                })
            }
        }
    };
}

uuid_id!(
    /// One execution of a workflow.
    RunId, "run id"
);
uuid_id!(
    /// One opening of one gate. A gate that opens again has a new id, so an old answer cannot fit it.
    GateId, "gate id"
);
uuid_id!(
    /// One sandbox, from its creation until nothing of it is left.
    SandboxId, "sandbox id"
);

/// A name that people write: checked once, here, and safe in paths, refs and environment variables.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:literal, $expected:literal, $ok:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String")]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let well_formed: fn(&str) -> bool = $ok;
                if !text.is_empty() && text.len() <= $max && well_formed(text) {
                    return Ok(Self(text.to_owned()));
                }
                Err(InvalidId { kind: $kind, value: text.to_owned(), expected: $expected })
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

fn is_kebab(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
}

fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

name!(
    /// The name of a phase, unique in its workflow.
    PhaseName, "phase name", 64,
    "1 to 64 of a-z, 0-9, `-` and `_`, beginning with a letter or digit", is_kebab
);
name!(
    /// The name of a file that a phase hands on, unique in its run.
    ArtifactName, "artifact name", 64,
    "1 to 64 of a-z, 0-9, `-` and `_`, beginning with a letter or digit", is_kebab
);
name!(
    /// A capability that runners announce and phases need.
    Label, "label", 64,
    "1 to 64 of a-z, 0-9, `-` and `_`, beginning with a letter or digit", is_kebab
);
name!(
    /// The name of a secret, which is also the environment variable that carries it.
    SecretName, "secret name", 64,
    "1 to 64 of A-Z, 0-9 and `_`, beginning with a letter or `_`", is_variable
);

/// A commit, by its full name: 40 hexadecimal digits (SHA-1) or 64 (SHA-256), lower case.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct CommitId(String);

impl CommitId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for CommitId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if matches!(text.len(), 40 | 64) && text.bytes().all(hex) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidId {
            kind: "commit",
            value: text.chars().take(80).collect(),
            expected: "40 or 64 lower-case hexadecimal digits",
        })
    }
}

impl TryFrom<String> for CommitId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<CommitId> for String {
    fn from(commit: CommitId) -> String {
        commit.0
    }
}

/// The fencing number of a lease: it only grows, and whoever shows a smaller one is refused (D2).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
