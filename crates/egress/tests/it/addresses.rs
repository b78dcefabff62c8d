//! What is decided once a name has been resolved.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use bulkhead_egress::{AddressClass, Egress, EgressError, ResolveError, Scheme, Target, Why};
use tokio::net::TcpListener;

use crate::support::{
    dns::{DnsServer, Reply, reply},
    permitting, refusal, rules, strict,
};

/// A zone in which `<anything>` resolves to what stands before the first `-at`: `10.0.0.1` for `v4-10-0-0-1.test`.
fn dashed(name: &str) -> Option<IpAddr> {
    let label = name.split('.').next()?;
    match label.split_once('-')? {
        ("v4", rest) => rest.replace('-', ".").parse().ok(),
        ("v6", rest) => rest.replace('-', ":").parse().ok(),
        _ => None,
    }
}

fn dashed_server() -> DnsServer {
    DnsServer::start(|name, _| match dashed(name) {
        Some(address) => Reply::Addresses(vec![address]),
        None => Reply::NxDomain,
    })
}

async fn class_of(egress: &Egress, name: &str) -> AddressClass {
    match refusal(egress, name).await.why {
        Why::Address { class, .. } => class,
        why => panic!("{name}: {why:?}"),
    }
}

#[tokio::test]
async fn n15_private_answers_are_refused() {
    let server = dashed_server();
    let egress = strict(&server);
    for (label, class) in [
        ("v4-10-0-0-1", AddressClass::Private),
        ("v4-172-16-0-1", AddressClass::Private),
        ("v4-172-31-255-255", AddressClass::Private),
        ("v4-192-168-1-1", AddressClass::Private),
        ("v4-100-64-0-1", AddressClass::Shared),
        ("v4-169-254-1-1", AddressClass::LinkLocal),
        ("v4-169-254-169-254", AddressClass::Metadata),
        ("v4-127-0-0-1", AddressClass::Loopback),
        ("v4-127-8-8-8", AddressClass::Loopback),
        ("v4-0-0-0-0", AddressClass::Unspecified),
        ("v4-192-0-0-1", AddressClass::Reserved),
        ("v4-198-18-0-1", AddressClass::Benchmarking),
        ("v4-224-0-0-1", AddressClass::Multicast),
        ("v4-240-0-0-1", AddressClass::Reserved),
        ("v4-255-255-255-255", AddressClass::Reserved),
        ("v4-203-0-113-1", AddressClass::Documentation),
    ] {
        assert_eq!(
            class_of(&egress, &format!("{label}.test.com")).await,
            class,
            "{label}"
        );
    }
}

/// Case 52: loopback, metadata and LAN in all forms of IPv6, over a real name server.
#[tokio::test]
async fn case_52_ipv6_forms_are_refused() {
    let server = dashed_server();
    let egress = strict(&server);
    for (label, class) in [
        ("v6---1", AddressClass::Loopback),
        ("v6---ffff-7f00-1", AddressClass::EmbeddedIpv4),
        ("v6---ffff-a9fe-a9fe", AddressClass::EmbeddedIpv4),
        ("v6-64-ff9b--7f00-1", AddressClass::Translation),
        ("v6-64-ff9b--808-808", AddressClass::Translation),
        ("v6-2002-7f00-1--1", AddressClass::Translation),
        ("v6-2002-a9fe-a9fe--1", AddressClass::Translation),
        ("v6-2001--1", AddressClass::Translation),
        ("v6-fd00-ec2--254", AddressClass::Metadata),
        ("v6-fd12--1", AddressClass::UniqueLocal),
        ("v6-fe80--1", AddressClass::LinkLocal),
        ("v6-fec0--1", AddressClass::SiteLocal),
        ("v6-ff02--1", AddressClass::Multicast),
        ("v6-100--1", AddressClass::Discard),
        ("v6---7f00-1", AddressClass::EmbeddedIpv4),
    ] {
        assert_eq!(
            class_of(&egress, &format!("{label}.test.com")).await,
            class,
            "{label}"
        );
    }
}

/// D10, N16: public names whose answers are private.
#[tokio::test]
async fn n16_public_names_of_private_places_are_refused() {
    let server = DnsServer::start(|name, _| match name {
        "169.254.169.254.nip.io" => reply(&["169.254.169.254"]),
        "localtest.me" => reply(&["127.0.0.1", "::1"]),
        "10-0-0-1.x.plex.direct" => reply(&["10.0.0.1"]),
        _ => Reply::NxDomain,
    });
    let egress = strict(&server);
    assert_eq!(
        class_of(&egress, "169.254.169.254.nip.io").await,
        AddressClass::Metadata
    );
    assert_eq!(
        class_of(&egress, "localtest.me").await,
        AddressClass::Loopback
    );
    assert_eq!(
        class_of(&egress, "10-0-0-1.x.plex.direct").await,
        AddressClass::Private
    );
}

/// N17, case 52: the name is resolved once per connection, and what connects is that answer; the next
/// connection resolves and judges anew. (Over public addresses: `netns.rs`.)
#[tokio::test]
async fn n17_an_answer_that_flips_is_judged_each_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = DnsServer::start(|_, before| match before {
        0 => reply(&["127.0.0.1"]),
        _ => reply(&["169.254.169.254"]),
    });
    let egress = permitting(&server, &["flip.test.com"]);
    let rule = format!("flip.test.com:{port}");
    let target = Target::from_authority(&rule).unwrap();
    let link = egress.connect(&rules(&[&rule]), &target).await.unwrap();
    assert_eq!(link.peer_addr().unwrap(), listener.local_addr().unwrap());
    let a_lookups = |server: &DnsServer| {
        server
            .asked()
            .iter()
            .filter(|(_, qtype)| *qtype == 1)
            .count()
    };
    assert_eq!(a_lookups(&server), 1, "one lookup, one connection");
    let second = egress.connect(&rules(&[&rule]), &target).await.unwrap_err();
    let why = &second.refusal().unwrap().why;
    assert!(
        matches!(
            why,
            Why::Address {
                class: AddressClass::Metadata,
                ..
            }
        ),
        "{why:?}"
    );
    assert_eq!(a_lookups(&server), 2, "a TTL of 0 is kept");
}

#[tokio::test]
async fn n19_an_alias_does_not_hide_where_it_ends() {
    let server = DnsServer::start(|name, _| match name {
        "alias.test.com" => Reply::Chain(
            vec!["b.test.com".into(), "metadata.google.internal".into()],
            vec!["169.254.169.254".parse().unwrap()],
        ),
        "to-local.test.com" => {
            Reply::Chain(vec!["localhost".into()], vec!["127.0.0.1".parse().unwrap()])
        }
        _ => Reply::NxDomain,
    });
    let egress = strict(&server);
    assert_eq!(
        class_of(&egress, "alias.test.com").await,
        AddressClass::Metadata
    );
    assert_eq!(
        class_of(&egress, "to-local.test.com").await,
        AddressClass::Loopback
    );
}

#[tokio::test]
async fn n20_four_thousand_records_cost_no_more_than_a_few() {
    let server = DnsServer::start(|_, _| {
        let all = (0..4_000u32).map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
        Reply::Addresses(all.collect())
    });
    let started = Instant::now();
    assert_eq!(
        class_of(&strict(&server), "many.test.com").await,
        AddressClass::Private
    );
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn n20_a_slow_name_server_is_waited_for_in_bounded_time() {
    let server =
        DnsServer::start(|_, _| Reply::Slow(Duration::from_secs(30), "8.8.8.8".parse().unwrap()));
    let target = Target::from_url("https://slow.test.com/", Scheme::WEB).unwrap();
    let started = Instant::now();
    let error = strict(&server)
        .connect(&rules(&["slow.test.com"]), &target)
        .await
        .unwrap_err();
    let took = started.elapsed();
    assert!(matches!(error, EgressError::Resolve { .. }), "{error:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test]
async fn n20_a_flood_of_unknown_names_ends_and_is_not_refused_for_another_reason() {
    let server = DnsServer::start(|_, _| Reply::NxDomain);
    let egress = strict(&server);
    let grant = rules(&["*.test.com"]);
    let attempts = (0..500).map(|n| {
        let (egress, grant) = (egress.clone(), grant.clone());
        async move {
            let target = Target::from_authority(&format!("n{n}.test.com:443")).unwrap();
            egress.connect(&grant, &target).await.unwrap_err()
        }
    });
    let errors = futures::future::join_all(attempts).await;
    let is_not_found = |error: &&EgressError| {
        matches!(
            error,
            EgressError::Resolve {
                source: ResolveError::NotFound,
                ..
            }
        )
    };
    let not_found = errors.iter().filter(is_not_found).count();
    // Under load some may run into the time limit; none may connect or hang.
    assert!(not_found > 400, "{not_found} of {}", errors.len());
}

#[tokio::test]
async fn private_networks_open_for_the_very_host_that_both_sides_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = DnsServer::start(|_, _| reply(&["127.0.0.1"]));
    let egress = permitting(&server, &["lan.test.com"]);
    let attempt = async |rule: &str, host: &str| {
        let target = Target::from_authority(&format!("{host}:{port}")).unwrap();
        egress
            .connect(&rules(&[&format!("{rule}:{port}")]), &target)
            .await
    };
    assert!(attempt("lan.test.com", "lan.test.com").await.is_ok());
    // Permitted, but only a star covers it; named, but not permitted; permitted, but not named.
    assert!(attempt("*.test.com", "lan.test.com").await.is_err());
    assert!(attempt("other.test.com", "other.test.com").await.is_err());
    assert!(attempt("other.test.com", "lan.test.com").await.is_err());
}

#[tokio::test]
async fn the_permission_never_opens_metadata_or_link_local() {
    let server = DnsServer::start(|name, _| match name {
        "meta.test.com" => reply(&["169.254.169.254", "fd00:ec2::254"]),
        _ => reply(&["fe80::1", "169.254.7.7"]),
    });
    let egress = permitting(
        &server,
        &["meta.test.com", "link.test.com", "metadata.google.internal"],
    );
    assert_eq!(
        class_of(&egress, "meta.test.com").await,
        AddressClass::Metadata
    );
    assert_eq!(
        class_of(&egress, "link.test.com").await,
        AddressClass::LinkLocal
    );
    assert_eq!(
        refusal(&egress, "metadata.google.internal").await.why,
        Why::LocalName
    );
}

#[tokio::test]
async fn a_dead_address_is_passed_over_for_a_live_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Nothing listens on the other two.
    let server = DnsServer::start(|_, _| reply(&["127.0.0.9", "::1", "127.0.0.1"]));
    let egress = permitting(&server, &["two.test.com"]);
    let rule = format!("two.test.com:{port}");
    let link = egress
        .connect(&rules(&[&rule]), &Target::from_authority(&rule).unwrap())
        .await
        .unwrap();
    assert_eq!(
        link.peer_addr().unwrap().ip(),
        listener.local_addr().unwrap().ip()
    );
}

#[tokio::test]
async fn names_come_from_dns_alone() {
    // /etc/hosts has localhost under such names on most machines; none of them is resolved from there.
    let server = DnsServer::start(|_, _| Reply::NxDomain);
    let target = Target::from_authority("ip6-allnodes.test.com:443").unwrap();
    let error = strict(&server)
        .connect(&rules(&["ip6-allnodes.test.com"]), &target)
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        EgressError::Resolve {
            source: ResolveError::NotFound,
            ..
        }
    ));
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    if let Ok(target) = Target::from_authority(&format!("{}:443", hostname.trim())) {
        let error = strict(&server)
            .connect(&rules(&[hostname.trim()]), &target)
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                EgressError::Resolve {
                    source: ResolveError::NotFound,
                    ..
                }
            ),
            "{error:?}"
        );
    }
    assert!(
        server
            .asked()
            .iter()
            .all(|(name, _)| !name.contains("localdomain")),
        "no search domain"
    );
}
