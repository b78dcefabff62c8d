//! One invocation's authority and counters, as the functions of `host` see them.

mod counters;
mod secrets;

use std::{collections::HashSet, sync::Arc};

use bulkhead_egress::Grant;
use bulkhead_model::{
    network::{HostName, NetworkPolicy},
    plugin::{InvocationKind, InvocationLimits},
};
use bulkhead_wire::platform;
use tokio::time::Instant;

pub use counters::{CallCounts, Counters, LimitReached, Used};
pub use secrets::{SecretNotKept, SecretRegistry};

use crate::platform_link::{NoPermit, PlatformLink};

/// What the platform says of an invocation, read and checked.
#[derive(Debug, Clone)]
pub struct Authority {
    /// The caller's name for the invocation.
    pub invocation: String,
    pub installation: String,
    pub kind: InvocationKind,
    pub limits: InvocationLimits,
    /// Names of secrets that may be asked for.
    pub secrets: HashSet<String>,
    pub permissions: HashSet<String>,
    pub egress: NetworkPolicy,
    /// Hosts that the installer named: for them the operator's permission of private networks counts.
    pub installer_hosts: HashSet<HostName>,
}

/// One invocation, while it runs.
pub struct InvocationContext {
    authority: Authority,
    grant: Grant,
    link: Arc<dyn PlatformLink>,
    deadline: Instant,
    counters: Counters,
    secrets: SecretRegistry,
}

impl InvocationContext {
    /// `deadline` is when its process will be killed.
    pub fn new(authority: Authority, link: Arc<dyn PlatformLink>, deadline: Instant) -> Self {
        Self {
            grant: Grant::installed(authority.egress.clone(), authority.installer_hosts.clone()),
            authority,
            link,
            deadline,
            counters: Counters::default(),
            secrets: SecretRegistry::default(),
        }
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What `host.fetch` may reach.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// No call needs to go on after it.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Asks the platform. The token goes with it; this side never sees it.
    pub async fn ask(&self, call: platform::call::Call) -> platform::answer::Answer {
        self.link.ask(call).await
    }

    /// Before every request and every hop of `host.fetch`.
    pub async fn permit(&self) -> Result<(), NoPermit> {
        self.link.permit().await
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Every secret that is given to the plugin is put here first: from then on it is hidden in logs and errors.
    pub fn secrets(&self) -> &SecretRegistry {
        &self.secrets
    }
}
