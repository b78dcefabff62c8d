//! The operator's upstream proxy (R6): what is asked of it, and what never is.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use bulkhead_egress::{
    AllowPrivate, Egress, EgressConfig, EgressError, Target, UpstreamProxy, Why,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    dns::{DnsServer, Reply, reply},
    egress_with, rules, silent,
};

/// A proxy that keeps the heads it was sent, and answers each with `answer`, then echoes.
fn proxy(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&heads);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or(0) > 0 {}
            kept.lock().unwrap().push(head);
            let _ = stream.write_all(answer.as_bytes());
            let mut rest = [0; 64];
            while let Ok(count @ 1..) = reader.read(&mut rest) {
                let _ = stream.write_all(&rest[..count]);
            }
        }
    });
    (address, heads)
}

fn through(proxy: &str, dns: &DnsServer, private: &[&str]) -> Egress {
    let config = EgressConfig {
        upstream_proxy: Some(UpstreamProxy::from_url(&proxy.to_owned().into()).unwrap()),
        allow_private: AllowPrivate::hosts(private).unwrap(),
        ..EgressConfig::default()
    };
    egress_with(
        config,
        bulkhead_egress::DnsResolver::with_servers(&[dns.address]),
    )
}

#[tokio::test]
async fn the_name_goes_to_the_proxy_unresolved_and_with_its_credentials() {
    let (address, heads) =
        proxy("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello from afar");
    let dns = silent();
    let egress = through(&format!("http://us%65r:p%40ss@{address}"), &dns, &[]);
    let target = Target::from_authority("GOOD.com.:443").unwrap();
    let mut link = egress
        .connect(&rules(&["good.com"]), &target)
        .await
        .unwrap();
    let mut first = [0; 15];
    link.read_exact(&mut first).await.unwrap();
    assert_eq!(
        &first, b"hello from afar",
        "what follows the head is the tunnel's"
    );
    link.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    link.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"ping");
    let head = heads.lock().unwrap()[0].clone();
    assert_eq!(
        head,
        "CONNECT good.com:443 HTTP/1.1\r\nHost: good.com:443\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
    );
    assert!(dns.asked().is_empty(), "nothing is resolved on this side");
}

#[tokio::test]
async fn rules_and_literals_are_checked_before_the_proxy_is_asked() {
    let (address, heads) = proxy("HTTP/1.1 200 OK\r\n\r\n");
    let egress = through(&format!("http://{address}"), &silent(), &[]);
    for (authority, why) in [
        ("evil.com:443", Why::NoRule),
        ("good.com:22", Why::PortNotAllowed { allowed: vec![443] }),
        ("127.1:443", Why::AddressLiteral),
        ("169.254.169.254:443", Why::AddressLiteral),
        ("localhost:443", Why::LocalName),
        ("metadata.google.internal:443", Why::LocalName),
    ] {
        let grant = rules(&["good.com", "localhost", "metadata.google.internal"]);
        let error = egress
            .connect(&grant, &Target::from_authority(authority).unwrap())
            .await
            .unwrap_err();
        assert_eq!(error.refusal().unwrap().why, why, "{authority}");
    }
    assert!(heads.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_proxy_that_refuses_or_babbles_is_an_error() {
    let target = Target::from_authority("good.com:443").unwrap();
    let (address, _) = proxy("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    let error = through(&format!("http://{address}"), &silent(), &[])
        .connect(&rules(&["good.com"]), &target)
        .await
        .unwrap_err();
    assert!(
        matches!(error, EgressError::UpstreamProxy { status: 407, .. }),
        "{error:?}"
    );
    let (address, _) = proxy("SSH-2.0-x\r\n\r\n");
    let error = through(&format!("http://{address}"), &silent(), &[])
        .connect(&rules(&["good.com"]), &target)
        .await
        .unwrap_err();
    assert!(matches!(error, EgressError::Connect { .. }), "{error:?}");
}

#[tokio::test]
async fn permitted_private_hosts_are_reached_without_the_proxy() {
    let (address, heads) = proxy("HTTP/1.1 200 OK\r\n\r\n");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rule = format!("lan.test.com:{}", listener.local_addr().unwrap().port());
    let dns = DnsServer::start(|name, _| match name {
        "lan.test.com" => reply(&["127.0.0.1"]),
        _ => Reply::NxDomain,
    });
    let egress = through(&format!("http://{address}"), &dns, &["lan.test.com"]);
    let link = egress
        .connect(&rules(&[&rule]), &Target::from_authority(&rule).unwrap())
        .await
        .unwrap();
    assert_eq!(link.peer_addr().unwrap(), listener.local_addr().unwrap());
    assert!(heads.lock().unwrap().is_empty());
}

#[test]
fn an_address_of_a_proxy_is_read_and_never_repeated() {
    for bad in [
        "proxy:3128",
        "ftp://u:hush@p:1",
        "https://u:hush@p:1",
        "http://",
        "http://u:hush@/",
        "http://u:hush@p:0",
    ] {
        let error = UpstreamProxy::from_url(&bad.to_owned().into()).unwrap_err();
        assert!(!error.to_string().contains("hush"), "{bad}");
    }
    let good = UpstreamProxy::from_url(&"http://u:hush@proxy.corp:3128".to_owned().into()).unwrap();
    assert!(
        !format!("{good:?}").contains("hush") && !format!("{good:?}").contains("dTpodXNo"),
        "{good:?}"
    );
}
