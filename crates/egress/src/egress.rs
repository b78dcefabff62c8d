//! The walk itself: from a target and a grant to a connection, or a refusal with its reason.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bulkhead_model::network::{Host, HostName};
use tokio::time;

use crate::{
    decision::{Decision, EgressError, Why},
    dial::{self, Private},
    grant::{AllowPrivate, Grant},
    resolve::{Resolve, ResolveError},
    stream::Link,
    target::Target,
    upstream::UpstreamProxy,
};

/// Bounds on one attempt to connect.
#[derive(Debug, Clone, Copy)]
pub struct EgressLimits {
    pub resolve: Duration,
    /// From the first packet until the connection stands, all addresses together.
    pub connect: Duration,
    /// The addresses of an answer that are tried.
    pub addresses: usize,
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            resolve: Duration::from_secs(5),
            connect: Duration::from_secs(10),
            addresses: 8,
        }
    }
}

/// What the operator sets for all connections. The default is: nothing private, no proxy.
#[derive(Debug, Clone, Default)]
pub struct EgressConfig {
    pub allow_private: AllowPrivate,
    pub upstream_proxy: Option<UpstreamProxy>,
    pub limits: EgressLimits,
}

/// The one place that decides on outgoing connections and makes them. Cheap to clone.
#[derive(Clone)]
pub struct Egress {
    config: Arc<EgressConfig>,
    resolver: Arc<dyn Resolve>,
}

impl Egress {
    pub fn new(config: EgressConfig, resolver: Arc<dyn Resolve>) -> Self {
        Self {
            config: Arc::new(config),
            resolver,
        }
    }

    /// Decides by name, scheme and port. Nothing is resolved or sent.
    pub fn check(&self, grant: &Grant, target: &Target) -> Decision {
        let why = match self.judge(grant, target) {
            Ok(why) | Err(why) => why,
        };
        Decision::new(target, why)
    }

    fn judge(&self, grant: &Grant, target: &Target) -> Result<Why, Why> {
        if let Host::Name(name) = target.host() {
            let is_permitted = self.private(grant, target.host()) == Private::Permitted;
            if is_metadata_name(name) || (is_localhost(name) && !is_permitted) {
                return Err(Why::LocalName);
            }
        }
        let why = grant.covers(target)?;
        let is_rule = matches!(why, Why::Rule(_));
        // A rule for 443 means TLS; what can be seen to be plain HTTP is not what was allowed (N10).
        if is_rule && target.scheme().is_clear() && target.port() == 443 {
            return Err(Why::ClearOverTls(443));
        }
        Ok(why)
    }

    /// Whether both the operator's permission and the grant name this very host.
    fn private(&self, grant: &Grant, host: &Host) -> Private {
        match self.config.allow_private.contains(host) && grant.names(host) {
            true => Private::Permitted,
            false => Private::Refused,
        }
    }

    /// Walks from the check to a connected stream, without TLS.
    pub async fn connect(&self, grant: &Grant, target: &Target) -> Result<Link, EgressError> {
        let decision = self.check(grant, target);
        if !decision.allowed() {
            return Err(EgressError::Refused(decision));
        }
        let private = self.private(grant, target.host());
        match &self.config.upstream_proxy {
            Some(proxy) if private == Private::Refused => self.connect_through(proxy, target).await,
            _ => self.connect_directly(target, private).await,
        }
    }

    async fn connect_directly(
        &self,
        target: &Target,
        private: Private,
    ) -> Result<Link, EgressError> {
        let found = match target.host() {
            Host::Ip(address) => vec![*address],
            Host::Name(name) => self.resolve(name).await?,
        };
        let refused = |why| EgressError::Refused(Decision::new(target, why));
        let kept = dial::filter(&found, private).map_err(refused)?;
        let checked: Vec<_> = kept
            .into_iter()
            .take(self.config.limits.addresses)
            .map(|address| SocketAddr::new(address, target.port()))
            .collect();
        let stream = self.within(target, dial::race(&checked)).await?;
        dial::check_peer(&stream, &checked, private).map_err(refused)?;
        // Tunnels carry interactive protocols; waiting to fill packets only delays them.
        let _ = stream.set_nodelay(true);
        Ok(Link::Direct(stream))
    }

    /// Reaches the operator's proxy, whose own address is the operator's business, and asks it for the target.
    async fn connect_through(
        &self,
        proxy: &UpstreamProxy,
        target: &Target,
    ) -> Result<Link, EgressError> {
        let found = match proxy.host() {
            Host::Ip(address) => vec![*address],
            Host::Name(name) => self.resolve(name).await?,
        };
        let at_port = |address| SocketAddr::new(address, proxy.port());
        let addresses: Vec<_> = found
            .into_iter()
            .take(self.config.limits.addresses)
            .map(at_port)
            .collect();
        let stream = self.within(target, dial::race(&addresses)).await?;
        let tunnel = proxy.open(stream, target);
        let limit = self.config.limits.connect;
        match time::timeout(limit, tunnel).await {
            Ok(result) => result.map(Link::Proxied),
            Err(_) => Err(timed_out(target, limit)),
        }
    }

    /// The addresses that this grant may reach under a name, on whatever port, and the decision: what DNS
    /// inside a sandbox answers. Names that no rule has are refused before anything is sent. The decision's
    /// port is 0.
    pub async fn addresses(
        &self,
        grant: &Grant,
        name: &HostName,
    ) -> Result<(Decision, Vec<IpAddr>), EgressError> {
        let host = Host::Name(name.clone());
        let port = match grant {
            Grant::Operator { port, .. } => Some(*port),
            list => list
                .policy()
                .and_then(|policy| policy.ports_for(name).first().copied()),
        };
        let target = Target::new(crate::Scheme::Tcp, host.clone(), port.unwrap_or_default());
        let decision = Decision {
            port: 0,
            ..self.check(grant, &target)
        };
        if !decision.allowed() {
            return Err(EgressError::Refused(decision));
        }
        let private = self.private(grant, &host);
        if self.config.upstream_proxy.is_some() && private == Private::Refused {
            return Err(EgressError::ResolvedUpstream(name.to_string()));
        }
        let found = self.resolve(name).await?;
        match dial::filter(&found, private) {
            Ok(kept) => Ok((decision, kept)),
            Err(why) => Err(EgressError::Refused(Decision { why, ..decision })),
        }
    }

    /// Whether the operator permits this host to lie in a private network.
    pub fn permits_private(&self, host: &Host) -> bool {
        self.config.allow_private.contains(host)
    }

    async fn resolve(&self, name: &HostName) -> Result<Vec<IpAddr>, EgressError> {
        let limit = self.config.limits.resolve;
        let answer = time::timeout(limit, self.resolver.resolve(name)).await;
        let result = match answer {
            Ok(Ok(found)) if found.is_empty() => Err(ResolveError::NotFound),
            Ok(result) => result,
            Err(_) => Err(ResolveError::Timeout {
                limit_ms: millis(limit),
            }),
        };
        result.map_err(|source| EgressError::Resolve {
            host: name.to_string(),
            source,
        })
    }

    async fn within<T>(
        &self,
        target: &Target,
        connecting: impl Future<Output = std::io::Result<T>>,
    ) -> Result<T, EgressError> {
        let limit = self.config.limits.connect;
        match time::timeout(limit, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(source)) => Err(EgressError::Connect {
                target: target.to_string(),
                source,
            }),
            Err(_) => Err(timed_out(target, limit)),
        }
    }
}

impl Egress {
    /// Bounds a TLS handshake by the same time as the connection before it.
    pub(crate) async fn handshake(
        &self,
        target: &Target,
        handshake: impl Future<Output = std::io::Result<Link>>,
    ) -> Result<Link, EgressError> {
        let limit = self.config.limits.connect;
        match time::timeout(limit, handshake).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(source)) => Err(EgressError::Tls {
                target: target.to_string(),
                source,
            }),
            Err(_) => Err(timed_out(target, limit)),
        }
    }
}

fn timed_out(target: &Target, limit: Duration) -> EgressError {
    EgressError::Timeout {
        target: target.to_string(),
        limit_ms: millis(limit),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn is_localhost(name: &HostName) -> bool {
    // RFC 6761, section 6.3; the longer forms are those of /etc/hosts on common systems.
    let last = name.labels().next_back();
    matches!(
        last,
        Some("localhost" | "localdomain" | "localhost4" | "localhost6")
    ) || matches!(name.as_str(), "ip6-localhost" | "ip6-loopback")
}

/// Names under which clouds serve credentials. The addresses behind them are refused too; the names are
/// refused first because a private DNS can give them any address. Nobody can permit these.
fn is_metadata_name(name: &HostName) -> bool {
    const NAMES: &[&str] = &[
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "metadata.azure.internal",
        "metadata.tencentyun.com",
        "metadata.platformequinix.com",
        "instance-data",
    ];
    NAMES.contains(&name.as_str())
        || name.labels().next() == Some("instance-data")
        || name.as_str().ends_with(".metadata.google.internal")
}
