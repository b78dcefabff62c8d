//! The outcome of a decision as a value, and the words for it.

use std::{io, net::IpAddr};

use bulkhead_model::network::{EgressRule, HostError};

use crate::{address::AddressClass, resolve::ResolveError, target::Target};

/// The longest host that a decision repeats, for logs.
const MAX_SHOWN: usize = 255;

/// What was decided on one attempt to go out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The normalised host where it could be read, otherwise the beginning of what was asked for.
    pub host: String,
    /// 0 where none could be read.
    pub port: u16,
    pub why: Why,
}

impl Decision {
    pub(crate) fn new(target: &Target, why: Why) -> Self {
        Self {
            host: target.host().to_string(),
            port: target.port(),
            why,
        }
    }

    /// A refusal of something that could not be read as a target.
    pub(crate) fn unread(text: &str, why: Why) -> Self {
        let printable = |c: &char| !c.is_control();
        Self {
            host: text.chars().filter(printable).take(MAX_SHOWN).collect(),
            port: 0,
            why,
        }
    }

    pub const fn allowed(&self) -> bool {
        self.why.allows()
    }
}

/// The precise reason of a decision. The text says what was seen, and where there is one, the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("the rule `{0}` allows it")]
    Rule(EgressRule),
    #[error("the operator's configuration names it")]
    Operator,

    #[error("this is not a URL")]
    NotAUrl,
    #[error("the scheme `{0}` is not one that can be used here")]
    Scheme(String),
    #[error("the address has a user name in it (`user@host`); credentials belong in a header")]
    Userinfo,
    #[error("{0}")]
    BadHost(HostError),
    #[error("the port is missing or not a number from 1 to 65535")]
    BadPort,
    #[error("it is an address; only names can be allowed")]
    AddressLiteral,
    #[error("the name always means this machine or its cloud's metadata service")]
    LocalName,
    #[error("no rule of the allow-list names it")]
    NoRule,
    #[error(
        "the allow-list has this host for other ports only ({})",
        list(allowed)
    )]
    PortNotAllowed { allowed: Vec<u16> },
    #[error("plain HTTP to port {0} would send in clear what the rule allows over TLS")]
    ClearOverTls(u16),
    #[error("its name leads to {address}, a {class} address")]
    Address {
        address: IpAddr,
        class: AddressClass,
    },
    #[error("the connection ended at {address}, a {class} address that was not the one checked")]
    Peer {
        address: IpAddr,
        class: AddressClass,
    },
    #[error("it is a redirect from HTTPS to plain HTTP")]
    Downgrade,
    #[error("it is one redirect too many ({0} were followed)")]
    TooManyRedirects(u8),
    #[error("it is a redirect to a place already visited")]
    RedirectLoop,
    #[error("the redirect names no place to go to")]
    BadRedirect,
}

impl Why {
    pub const fn allows(&self) -> bool {
        matches!(self, Self::Rule(_) | Self::Operator)
    }
}

fn list(ports: &[u16]) -> String {
    let shown: Vec<_> = ports.iter().take(8).map(ToString::to_string).collect();
    shown.join(", ")
}

/// No connection came of it.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// Policy said no.
    #[error("connecting to {}:{} was refused: {}", .0.host, .0.port, .0.why)]
    Refused(Decision),
    #[error("resolving {host}")]
    Resolve {
        host: String,
        #[source]
        source: ResolveError,
    },
    /// With an upstream proxy names are resolved there, and only there.
    #[error("{0} cannot be resolved here: the operator's upstream proxy resolves names")]
    ResolvedUpstream(String),
    #[error("connecting to {target}")]
    Connect {
        target: String,
        #[source]
        source: io::Error,
    },
    #[error("connecting to {target} took longer than {limit_ms} ms")]
    Timeout { target: String, limit_ms: u64 },
    #[error("setting up TLS with {target}; is its certificate signed by a known authority?")]
    Tls {
        target: String,
        #[source]
        source: io::Error,
    },
    #[error("the upstream proxy answered {status} for {target}")]
    UpstreamProxy { target: String, status: u16 },
}

impl EgressError {
    /// The refusal, where policy was the reason.
    pub const fn refusal(&self) -> Option<&Decision> {
        match self {
            Self::Refused(decision) => Some(decision),
            _ => None,
        }
    }

    /// Finds this error inside those that HTTP clients wrap around it.
    pub fn find<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error| error.source())
            .find_map(|error| error.downcast_ref())
    }
}
