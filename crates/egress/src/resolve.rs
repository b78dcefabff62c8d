//! Names to addresses, by DNS alone, in bounded time and size (N20).

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bulkhead_model::network::HostName;
use futures::future::BoxFuture;
use hickory_resolver::{
    TokioResolver,
    config::{
        ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
        ResolverOpts,
    },
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{op::ResponseCode, rr::Name},
    system_conf::read_system_conf,
};
use tokio::sync::Semaphore;

/// The most addresses taken from one answer, however many records it has.
const MAX_ADDRESSES: usize = 64;
/// Lookups at one time; more wait, and their waiting counts against their time.
const MAX_LOOKUPS: usize = 64;
const CACHED_NAMES: u64 = 512;

/// A source of addresses. What it answers is never trusted: every address is judged afterwards.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of one exact name. An empty list means the same as [`ResolveError::NotFound`].
    fn resolve<'a>(
        &'a self,
        name: &'a HostName,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, ResolveError>>;
}

/// A name gave no addresses.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("the name does not exist, or has no address")]
    NotFound,
    #[error("no answer within {limit_ms} ms")]
    Timeout { limit_ms: u64 },
    #[error("no name server is configured; expected `nameserver` lines in /etc/resolv.conf")]
    NoServers,
    #[error("the name server failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// DNS over UDP and TCP to the system's or given name servers. Neither `/etc/hosts` nor a search domain
/// plays a part: a name means the same whoever asks for it.
pub struct DnsResolver {
    /// None without a name server.
    resolver: Option<TokioResolver>,
    slots: Semaphore,
}

impl DnsResolver {
    /// The name servers of `/etc/resolv.conf`. Without any, every lookup fails and says so.
    pub fn system() -> Arc<Self> {
        let servers = read_system_conf().map(|(config, _)| config.name_servers);
        Self::with(servers.unwrap_or_default())
    }

    /// These name servers, asked by UDP, and by TCP where an answer was truncated.
    pub fn with_servers(servers: &[SocketAddr]) -> Arc<Self> {
        Self::with(servers.iter().copied().map(name_server).collect())
    }

    fn with(servers: Vec<NameServerConfig>) -> Arc<Self> {
        let resolver = (!servers.is_empty()).then(|| build(servers).ok()).flatten();
        Arc::new(Self {
            resolver,
            slots: Semaphore::new(MAX_LOOKUPS),
        })
    }

    async fn lookup(&self, name: &HostName) -> Result<Vec<IpAddr>, ResolveError> {
        let resolver = self.resolver.as_ref().ok_or(ResolveError::NoServers)?;
        let _slot = self
            .slots
            .acquire()
            .await
            .map_err(|_| ResolveError::NoServers)?;
        // The root's dot at the end keeps every search list out of it.
        let rooted = Name::from_ascii(format!("{name}.")).map_err(failed)?;
        match resolver.lookup_ip(rooted).await {
            Ok(answer) => Ok(answer.iter().take(MAX_ADDRESSES).collect()),
            Err(error) if is_negative(&error) => Err(ResolveError::NotFound),
            Err(error) => Err(failed(error)),
        }
    }
}

impl Resolve for DnsResolver {
    fn resolve<'a>(
        &'a self,
        name: &'a HostName,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, ResolveError>> {
        Box::pin(self.lookup(name))
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> ResolveError {
    ResolveError::Failed(Box::new(error))
}

/// An answer that says "nothing there", as opposed to a server that failed.
fn is_negative(error: &NetError) -> bool {
    matches!(
        error,
        NetError::Dns(DnsError::NoRecordsFound(none))
            if matches!(none.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
    )
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    let at_port = |connection: &mut ConnectionConfig| connection.port = address.port();
    server.connections.iter_mut().for_each(at_port);
    server
}

fn build(servers: Vec<NameServerConfig>) -> Result<TokioResolver, NetError> {
    let config = ResolverConfig::from_parts(None, Vec::new(), servers);
    let mut options = ResolverOpts::default();
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = Duration::from_secs(2);
    options.attempts = 2;
    options.cache_size = CACHED_NAMES;
    options.positive_max_ttl = Some(Duration::from_secs(60));
    options.negative_max_ttl = Some(Duration::from_secs(10));
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        .with_options(options)
        .build()
}
