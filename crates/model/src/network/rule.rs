//! One rule of an allow-list: a name or everything below a name, and one port.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::host::{Host, HostError, HostName};

/// The port of a rule that names none: HTTPS.
pub const DEFAULT_PORT: u16 = 443;

/// Which names a rule covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    Exact(HostName),
    /// `*.name`: every name one or more labels below it, never the name itself.
    Below(HostName),
}

impl HostPattern {
    pub fn matches(&self, host: &HostName) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Below(parent) => host.is_below(parent),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(f),
            Self::Below(parent) => write!(f, "*.{parent}"),
        }
    }
}

/// One host pattern and port. Written and stored as `host:port`; checked whenever it is read.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct EgressRule {
    pub host: HostPattern,
    pub port: u16,
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl From<EgressRule> for String {
    fn from(rule: EgressRule) -> Self {
        rule.to_string()
    }
}

impl TryFrom<String> for EgressRule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl FromStr for EgressRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse(text).map_err(|problem| RuleError {
            entry: text.chars().take(300).collect(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<EgressRule, RuleProblem> {
    refuse_what_is_no_host(text)?;
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, parse_port(port)?),
        None => (text, DEFAULT_PORT),
    };
    let host = parse_pattern(host)?;
    // Written with its port, this one name would be read again as a preset.
    if matches!(&host, HostPattern::Exact(name) if name.as_str() == "preset") {
        return Err(RuleProblem::Preset);
    }
    Ok(EgressRule { host, port })
}

/// Names the usual mistakes before the general parser would say something vaguer about them.
fn refuse_what_is_no_host(text: &str) -> Result<(), RuleProblem> {
    let looks_like_v6 = text.starts_with('[') || text.matches(':').count() > 1;
    let problem = match text {
        "" => RuleProblem::Empty,
        _ if text.chars().any(|c| c.is_whitespace() || c.is_control()) => RuleProblem::Space,
        _ if text.contains("://") => RuleProblem::Scheme,
        _ if text.contains('@') => RuleProblem::Userinfo,
        _ if text.contains(['/', '\\', '?', '#']) => RuleProblem::Path,
        _ if text.contains('%') => RuleProblem::Percent,
        _ if text.starts_with("preset:") => RuleProblem::Preset,
        _ if looks_like_v6 => RuleProblem::Address,
        _ => return Ok(()),
    };
    Err(problem)
}

fn parse_port(text: &str) -> Result<u16, RuleProblem> {
    let all_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(port) if all_digits && port > 0 && !text.starts_with('0') => Ok(port),
        _ => Err(RuleProblem::Port),
    }
}

fn parse_pattern(text: &str) -> Result<HostPattern, RuleProblem> {
    let (name, is_star) = match text.strip_prefix("*.") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    if text == "*" || name.is_empty() && is_star {
        return Err(RuleProblem::BareStar);
    }
    if name.contains('*') {
        return Err(RuleProblem::InnerStar);
    }
    match Host::parse(name).map_err(RuleProblem::Host)? {
        Host::Ip(_) => Err(RuleProblem::Address),
        Host::Name(name) if is_star && is_shared_by_strangers(&name) => Err(RuleProblem::WideStar),
        Host::Name(name) if is_star => Ok(HostPattern::Below(name)),
        Host::Name(name) => Ok(HostPattern::Exact(name)),
    }
}

/// Whether names below this one belong to people who have nothing to do with each other, so that a
/// star over it would allow anybody's server.
fn is_shared_by_strangers(name: &HostName) -> bool {
    let labels: Vec<_> = name.labels().collect();
    let is_registry = match labels.as_slice() {
        [_] => true,
        [second, country] if country.len() == 2 => REGISTRY_LABELS.contains(second),
        _ => false,
    };
    // A star over the parent of such a name covers the strangers' names too.
    let covers = |shared: &str| {
        let rest = shared.strip_suffix(name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    is_registry || SHARED.iter().any(|shared| covers(shared))
}

/// Second-level labels under which country registries sell names (`co.uk`, `com.au`, `or.jp`).
const REGISTRY_LABELS: &[&str] = &[
    "ac", "asso", "co", "com", "edu", "gob", "go", "gouv", "gov", "gv", "id", "in", "info", "kr",
    "ltd", "me", "mil", "ne", "net", "nom", "or", "org", "plc", "sch", "web",
];

/// Providers that give names below these to anybody, as listed in the private section of the Public
/// Suffix List (publicsuffix.org), and services that answer for any address written in the name.
/// Not complete: the filter on addresses holds for every name, whatever the rule.
const SHARED: &[&str] = &[
    "s3.amazonaws.com",
    "appspot.com",
    "azureedge.net",
    "azurewebsites.net",
    "blob.core.windows.net",
    "blogspot.com",
    "cloudapp.net",
    "cloudfront.net",
    "cloudfunctions.net",
    "deno.dev",
    "duckdns.org",
    "fastly.net",
    "firebaseapp.com",
    "fly.dev",
    "github.io",
    "gitlab.io",
    "herokuapp.com",
    "netlify.app",
    "ngrok-free.app",
    "ngrok.app",
    "ngrok.io",
    "nip.io",
    "onrender.com",
    "pages.dev",
    "plex.direct",
    "r2.dev",
    "readthedocs.io",
    "repl.co",
    "run.app",
    "sslip.io",
    "storage.googleapis.com",
    "surge.sh",
    "trycloudflare.com",
    "vercel.app",
    "web.app",
    "workers.dev",
    "xip.io",
];

/// An entry is not a rule: which entry, and what was expected instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} is not an allow-list entry: {problem}")]
pub struct RuleError {
    pub entry: String,
    /// Not a source: it is the second half of the sentence.
    pub problem: RuleProblem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleProblem {
    #[error("it is empty; expected a host such as `api.example.com`")]
    Empty,
    #[error("it holds a space or control character; write one host an entry")]
    Space,
    #[error("it has a scheme; write the host and port alone, such as `api.example.com:443`")]
    Scheme,
    #[error("it has a user name (`@`); write the host and port alone")]
    Userinfo,
    #[error("it has a path or query; rules are by host and port only")]
    Path,
    #[error("it is percent-encoded; write the host as it is")]
    Percent,
    #[error("a preset stands for several rules; expected one host here")]
    Preset,
    #[error(
        "addresses cannot be allowed, only names; give the machine a name, and for a private network ask the operator to permit that name"
    )]
    Address,
    #[error("its port is not a number from 1 to 65535 without leading zeros")]
    Port,
    #[error("a bare star would allow everything; name the hosts, such as `*.example.com`")]
    BareStar,
    #[error("a star may stand only for whole labels at the beginning, as in `*.example.com`")]
    InnerStar,
    #[error(
        "everyone can own a name below this one, so the star would allow strangers' servers; name the host itself, or a star below your own domain"
    )]
    WideStar,
    #[error(transparent)]
    Host(HostError),
}
