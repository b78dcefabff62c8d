//! The network of `sandbox exec`: the door, where the caller allows anything at all.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result};
use bulkhead_door::{Door, DoorConfig, DoorLimits, DoorListeners};
use bulkhead_egress::{
    AllowPrivate, DnsResolver, Egress, EgressConfig, EgressLimits, UpstreamProxy,
};
use bulkhead_model::NetworkPolicy;
use bulkhead_sandbox::{BoundSocket, Listener, ProcessSpec, Sandbox};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{config::OperatorConfig, failure::Misuse, output::Output};

const PROXY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 3128);
const DNS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 53);
/// How long standing connections may take to end when the command has.
const GRACE: Duration = Duration::from_millis(200);

/// What may be reached, read and checked before anything is built. Nothing unless the caller said so (case 50).
pub(super) struct Network {
    policy: NetworkPolicy,
    egress: EgressConfig,
}

impl Network {
    pub(super) fn read(allow: &[String], operator: &OperatorConfig) -> Result<Option<Self>> {
        if allow.is_empty() {
            return Ok(None);
        }
        let policy = NetworkPolicy::from_list(allow)
            .map_err(|error| Misuse::usage(format!("--allow: {error}")))?;
        let egress = EgressConfig {
            allow_private: AllowPrivate::hosts(&operator.allow_private).map_err(|error| {
                Misuse::usage(format!("allow_private in the configuration: {error}"))
            })?,
            upstream_proxy: operator
                .proxy_secret()
                .as_ref()
                .map(UpstreamProxy::from_url)
                .transpose()?,
            limits: EgressLimits::default(),
        };
        Ok(Some(Self { policy, egress }))
    }

    /// The sockets to make inside, in the order in which [`Network::open`] takes them.
    pub(super) fn listeners() -> Vec<Listener> {
        vec![Listener::tcp(PROXY), Listener::tcp(DNS), Listener::udp(DNS)]
    }

    /// Tells programs of the proxy, in the variables that they look for.
    pub(super) fn announce(spec: ProcessSpec) -> ProcessSpec {
        let proxy = format!("http://{PROXY}");
        let names = [
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
        ];
        names
            .iter()
            .fold(spec, |spec, name| spec.env(name, &proxy))
            .env("NO_PROXY", "localhost,127.0.0.1,::1")
            .env("no_proxy", "localhost,127.0.0.1,::1")
    }

    /// Serves the sandbox's sockets, and says each decision on standard error.
    pub(super) fn open(self, sandbox: &Sandbox, output: Output) -> Result<OpenDoor> {
        let (log, mut decisions) = mpsc::channel(64);
        let config = DoorConfig {
            policy: self.policy,
            egress: Egress::new(self.egress, DnsResolver::system()),
            limits: DoorLimits::default(),
            log,
        };
        let door = Door::serve(config, sort(sandbox.take_listeners())?)?;
        let mut said = JoinSet::new();
        said.spawn(async move {
            while let Some(decision) = decisions.recv().await {
                if !decision.allowed {
                    output.note(format_args!("bulkhead: network: {decision}"));
                }
            }
        });
        Ok(OpenDoor { door, said })
    }
}

fn sort(sockets: Vec<BoundSocket>) -> Result<DoorListeners> {
    let [
        BoundSocket::Tcp(proxy),
        BoundSocket::Tcp(dns_tcp),
        BoundSocket::Udp(dns_udp),
    ] = <[BoundSocket; 3]>::try_from(sockets)
        .ok()
        .context("the sandbox did not make the sockets that it was asked for")?
    else {
        anyhow::bail!("the sandbox's sockets are not those that it was asked for");
    };
    Ok(DoorListeners {
        proxy: Some(proxy),
        dns_tcp: Some(dns_tcp),
        dns_udp: Some(dns_udp),
        forwards: Vec::new(),
    })
}

/// A door in use.
pub(super) struct OpenDoor {
    door: Door,
    said: JoinSet<()>,
}

impl OpenDoor {
    pub(super) async fn close(mut self) {
        self.door.stop(GRACE).await;
        while self.said.join_next().await.is_some() {}
    }
}
