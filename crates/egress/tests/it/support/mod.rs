//! What these tests talk to: real sockets on loopback.

pub(crate) mod dns;
pub(crate) mod tls;

use std::sync::Arc;

use bulkhead_egress::{
    AllowPrivate, Decision, DnsResolver, Egress, EgressConfig, EgressError, Grant, Resolve, Scheme,
    Target,
};
use bulkhead_model::NetworkPolicy;
use dns::DnsServer;

pub(crate) fn rules(list: &[&str]) -> Grant {
    Grant::rules(NetworkPolicy::from_list(list).unwrap())
}

/// An egress that resolves through this server and permits nothing private.
pub(crate) fn strict(server: &DnsServer) -> Egress {
    permitting(server, &[])
}

pub(crate) fn permitting(server: &DnsServer, hosts: &[&str]) -> Egress {
    let config = EgressConfig {
        allow_private: AllowPrivate::hosts(hosts).unwrap(),
        ..EgressConfig::default()
    };
    Egress::new(config, DnsResolver::with_servers(&[server.address]))
}

/// A server without any name: for what must be refused before anybody is asked.
pub(crate) fn silent() -> DnsServer {
    DnsServer::start(|_, _| dns::Reply::NxDomain)
}

pub(crate) fn egress_with(config: EgressConfig, resolver: Arc<dyn Resolve>) -> Egress {
    Egress::new(config, resolver)
}

/// The decision on a URL, by name alone.
pub(crate) fn decide(list: &[&str], url: &str) -> Decision {
    let server = silent();
    let decision = match Target::from_url(url, &[Scheme::Https]) {
        Ok(target) => strict(&server).check(&rules(list), &target),
        Err(decision) => decision,
    };
    assert!(server.asked().is_empty(), "deciding by name sends nothing");
    decision
}

/// The refusal at the end of a whole walk to `https://<name>/`.
pub(crate) async fn refusal(egress: &Egress, name: &str) -> Decision {
    let target = Target::from_url(&format!("https://{name}/"), Scheme::WEB).unwrap();
    match egress.connect(&rules(&[name]), &target).await {
        Err(EgressError::Refused(decision)) => decision,
        other => panic!("{name} was not refused: {other:?}"),
    }
}
