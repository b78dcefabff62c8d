//! The decision on a URL. Nothing is resolved and nothing is sent.

use std::{net::IpAddr, sync::Arc};

use bulkhead_egress::{Egress, EgressConfig, Grant, Redirects, Resolve, ResolveError, Scheme, Target, Why};
use bulkhead_model::network::{Host, HostName, NetworkPolicy};
use futures::future::BoxFuture;

const RULES: [&str; 4] = ["good.com", "*.star.org", "other.example:8443", "xn--bcher-kva.example:80"];

struct Nobody;

impl Resolve for Nobody {
    fn resolve<'a>(&'a self, _: &'a HostName) -> BoxFuture<'a, Result<Vec<IpAddr>, ResolveError>> {
        unreachable!("a decision by name resolves nothing")
    }
}

pub fn egress_url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let policy = NetworkPolicy::from_list(RULES).expect("the rules are good");
    let egress = Egress::new(EgressConfig::default(), Arc::new(Nobody));
    let grant = Grant::rules(policy);
    if let Ok(target) = Target::from_url(text, Scheme::WEB) {
        judge(&egress, &grant, &target);
    }
    if let Ok(target) = Target::from_authority(text) {
        judge(&egress, &grant, &target);
    }
    // As the `Location` of a redirect.
    let start = url::Url::parse("https://good.com/a/b?c").expect("it is a URL");
    if let Ok(hop) = Redirects::new(start, Scheme::WEB, 20).follow(data) {
        assert!(hop.target.scheme().is_tls(), "no way down from HTTPS");
        judge(&egress, &grant, &hop.target);
    }
    // A rule that is taken names a name, and reads the same when it is read again.
    if let Ok(policy) = NetworkPolicy::from_list([text]) {
        for rule in &policy.allow {
            let again = NetworkPolicy::from_list([rule.to_string()]).expect("a rule reads itself");
            assert_eq!(again.allow, std::slice::from_ref(rule));
        }
    }
}

fn judge(egress: &Egress, grant: &Grant, target: &Target) {
    let decision = egress.check(grant, target);
    let host = target.host().to_string();
    let again = Host::parse(&host).expect("a host reads itself");
    assert_eq!(&again, target.host(), "one string in all its forms");
    if !decision.allowed() {
        return;
    }
    assert!(matches!(decision.why, Why::Rule(_)));
    assert!(matches!(target.host(), Host::Name(_)), "an address was allowed");
    let is_declared = match (host.as_str(), target.port()) {
        ("good.com", 443) | ("other.example", 8443) | ("xn--bcher-kva.example", 80) => true,
        (host, 443) => host.ends_with(".star.org"),
        _ => false,
    };
    assert!(is_declared, "{host}:{} was allowed", target.port());
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "https://good.com/", "https://a.star.org./x?y#z", "https://other.example:8443", "http://b\u{fc}cher.example/", "https://good.com@evil.com/",
        "//evil.com/", "https://0x7f.1/", "https://[::1]:443/", "good.com:443", "*.star.org", "https://good.com.evil.com", "..\\..//good.com",
        "https://GOOD.com:443/%2e%2e/", "https://xn--bcher-kva.example:80", "preset:npm",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}
