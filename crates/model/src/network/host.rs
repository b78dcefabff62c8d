//! Host names and addresses as they are compared: one reading for rules and for requests.

use std::{borrow::Borrow, fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// The longest text that is looked at, before IDNA shortens or lengthens it.
const MAX_TEXT: usize = 1_024;
/// RFC 1035, section 2.3.4, less the root's length byte and one for the first label's.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// What stands in the host's place of a URL, an authority or a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    Name(HostName),
    /// An address literal in any of the forms that the URL standard reads: `127.1`, `0x7f000001`,
    /// `2130706433`, full-width digits, `[::1]`. No rule can name one.
    Ip(IpAddr),
}

impl Host {
    /// Reads a host as the URL standard does (WHATWG, section 3.5), strips one trailing dot, and then
    /// asks for what DNS asks for: labels of 1 to 63 of `a-z`, `0-9`, `-` and `_`, at most 253 in all.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if text.len() > MAX_TEXT {
            return Err(HostError::TooLong);
        }
        match url::Host::parse(text).map_err(|_| HostError::NotAHost)? {
            url::Host::Domain(name) => HostName::from_ascii(&name).map(Self::Name),
            url::Host::Ipv4(address) => Ok(Self::Ip(address.into())),
            url::Host::Ipv6(address) => Ok(Self::Ip(address.into())),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Ip(IpAddr::V4(address)) => address.fmt(f),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// A DNS name in lower-case ASCII without a trailing dot; never an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The labels, the most general one last.
    pub fn labels(&self) -> std::str::Split<'_, char> {
        self.0.split('.')
    }

    /// Whether this name lies below `parent`, one or more labels deep.
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0
            .strip_suffix(parent.as_str())
            .is_some_and(|rest| rest.ends_with('.'))
    }

    fn from_ascii(name: &str) -> Result<Self, HostError> {
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.len() > MAX_NAME {
            return Err(HostError::TooLong);
        }
        for label in name.split('.') {
            if label.is_empty() {
                return Err(HostError::EmptyLabel);
            }
            if label.len() > MAX_LABEL || !is_label(label) {
                return Err(HostError::Label(label.to_owned()));
            }
        }
        Ok(Self(name.to_owned()))
    }
}

fn is_label(label: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    !label.starts_with('-') && !label.ends_with('-') && label.chars().all(is_inner)
}

impl FromStr for HostName {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        match Host::parse(text)? {
            Host::Name(name) => Ok(name),
            Host::Ip(_) => Err(HostError::Address),
        }
    }
}

impl TryFrom<String> for HostName {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        text.parse()
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

impl Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text was not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("the host is empty; expected a name such as `api.example.com`")]
    Empty,
    #[error("the host is too long; a name has at most {MAX_NAME} characters")]
    TooLong,
    #[error("the host has an empty label (two dots in a row, or a dot at its beginning)")]
    EmptyLabel,
    #[error(
        "the label {0:?} is not one of a host name: expected 1 to {MAX_LABEL} of a-z, 0-9, `-` and `_`, with no `-` at an end"
    )]
    Label(String),
    #[error("this is neither a host name nor an address")]
    NotAHost,
    #[error("this is an address; expected a name")]
    Address,
}
