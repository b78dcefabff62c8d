//! On whose behalf a connection is made, and what the operator permits beyond public addresses.

use std::{collections::HashSet, sync::Arc};

use bulkhead_model::network::{Host, HostError, HostName, HostPattern, NetworkPolicy};

use crate::{decision::Why, target::Target};

/// What a caller may reach.
#[derive(Debug, Clone)]
pub enum Grant {
    /// An allow-list: for everything that somebody else than the operator asks for.
    Rules(Arc<NetworkPolicy>),
    /// An allow-list by a stranger, a plugin's author: of its hosts, only those that its installer named themselves
    /// can lie in a private network, where the operator permits it (P9).
    Installed {
        policy: Arc<NetworkPolicy>,
        named: Arc<HashSet<HostName>>,
    },
    /// One place that the operator's own configuration names, such as the base URL of a model API.
    Operator { host: Host, port: u16 },
}

impl Grant {
    pub fn rules(policy: NetworkPolicy) -> Self {
        Self::Rules(Arc::new(policy))
    }

    pub fn installed(policy: NetworkPolicy, named: HashSet<HostName>) -> Self {
        Self::Installed {
            policy: Arc::new(policy),
            named: Arc::new(named),
        }
    }

    /// The allow-list, where there is one.
    pub(crate) fn policy(&self) -> Option<&NetworkPolicy> {
        match self {
            Self::Rules(policy) | Self::Installed { policy, .. } => Some(policy),
            Self::Operator { .. } => None,
        }
    }

    pub fn operator(target: &Target) -> Self {
        Self::Operator {
            host: target.host().clone(),
            port: target.port(),
        }
    }

    /// Why this grant covers the target, or why not. Says nothing on addresses yet.
    pub(crate) fn covers(&self, target: &Target) -> Result<Why, Why> {
        match (self, target.host()) {
            (Self::Operator { host, port }, asked) if host == asked && *port == target.port() => {
                Ok(Why::Operator)
            }
            (Self::Operator { .. }, _) => Err(Why::NoRule),
            (Self::Rules(_) | Self::Installed { .. }, Host::Ip(_)) => Err(Why::AddressLiteral),
            (Self::Rules(policy) | Self::Installed { policy, .. }, Host::Name(name)) => {
                covers_name(policy, name, target.port())
            }
        }
    }

    /// Whether the grant names this very host, not merely a star over it: only then can the operator's
    /// permission for private networks count (P9).
    pub(crate) fn names(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Operator { host: named, .. }, host) => named == host,
            (Self::Rules(policy), Host::Name(name)) => policy
                .allow
                .iter()
                .any(|rule| matches!(&rule.host, HostPattern::Exact(exact) if exact == name)),
            (Self::Installed { named, .. }, Host::Name(name)) => named.contains(name),
            (Self::Rules(_) | Self::Installed { .. }, Host::Ip(_)) => false,
        }
    }
}

fn covers_name(policy: &NetworkPolicy, name: &HostName, port: u16) -> Result<Why, Why> {
    if let Some(rule) = policy.rule_for(name, port) {
        return Ok(Why::Rule(rule.clone()));
    }
    match policy.ports_for(name) {
        ports if ports.is_empty() => Err(Why::NoRule),
        ports => Err(Why::PortNotAllowed { allowed: ports }),
    }
}

/// The operator's permission to reach private networks, by exact host: the only way around the filter on
/// addresses. It opens nothing by itself; a rule or the operator's own target must name the host as well.
#[derive(Debug, Clone, Default)]
pub struct AllowPrivate(HashSet<Host>);

impl AllowPrivate {
    /// No private network at all: the default.
    pub fn none() -> Self {
        Self::default()
    }

    /// Exact names, or addresses for the operator's own targets. There are no stars.
    pub fn hosts<S: AsRef<str>>(hosts: impl IntoIterator<Item = S>) -> Result<Self, HostError> {
        let read = |text: S| Host::parse(text.as_ref());
        Ok(Self(hosts.into_iter().map(read).collect::<Result<_, _>>()?))
    }

    pub fn contains(&self, host: &Host) -> bool {
        self.0.contains(host)
    }
}
