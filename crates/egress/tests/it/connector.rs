//! The guarded connector under hyper's client, over real TLS.

use std::{error::Error, net::SocketAddr, process::Command};

use bulkhead_egress::{Connector, DnsResolver, Egress, EgressConfig, EgressError, Grant, Tls, Why};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::support::{
    dns::{DnsServer, reply},
    permitting, rules, silent,
    tls::TestCa,
};

/// A TLS server that answers every request with the name that the client asked for by SNI.
async fn tls_server(ca: &TestCa, names: &str, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(ca.server(names));
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let name = stream
                .get_ref()
                .1
                .server_name()
                .unwrap_or("none")
                .to_owned();
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head).await;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{name}",
                name.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

async fn get(egress: &Egress, tls: Tls, grant: Grant, url: &str) -> Result<String, Box<dyn Error>> {
    let client: Client<_, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build(Connector::new(egress.clone(), tls, grant));
    let response = client.get(url.parse()?).await?;
    Ok(String::from_utf8(
        response.into_body().collect().await?.to_bytes().to_vec(),
    )?)
}

#[tokio::test]
async fn https_goes_to_the_checked_address_under_the_checked_name() {
    let (mut tasks, ca) = (JoinSet::new(), TestCa::new());
    let port = tls_server(&ca, "DNS:good.test.com", &mut tasks)
        .await
        .port();
    let dns = DnsServer::start(|_, _| reply(&["127.0.0.1"]));
    let egress = permitting(&dns, &["good.test.com", "other.test.com"]);
    let grant = rules(&[
        &format!("good.test.com:{port}"),
        &format!("other.test.com:{port}"),
    ]);
    let tls = Tls::with_extra(Some(&ca.pem())).unwrap();
    // N3: the name of the certificate, of SNI and of the rule is one string, without the dot.
    let url = format!("https://GOOD.test.com.:{port}/");
    assert_eq!(
        get(&egress, tls.clone(), grant.clone(), &url)
            .await
            .unwrap(),
        "good.test.com"
    );

    let error = get(
        &egress,
        tls,
        grant.clone(),
        &format!("https://other.test.com:{port}/"),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(EgressError::find(&*error), Some(EgressError::Tls { .. })),
        "a certificate for another name"
    );
    let stranger = Tls::system().unwrap();
    let error = get(&egress, stranger, grant, &url).await.unwrap_err();
    assert!(
        matches!(EgressError::find(&*error), Some(EgressError::Tls { .. })),
        "an unknown authority"
    );
}

#[tokio::test]
async fn a_refusal_is_found_inside_the_clients_error() {
    let grant = rules(&["good.com"]);
    let error = get(
        &permitting(&silent(), &[]),
        Tls::system().unwrap(),
        grant,
        "https://evil.com/",
    )
    .await
    .unwrap_err();
    let refusal = EgressError::find(&*error)
        .and_then(EgressError::refusal)
        .unwrap();
    assert_eq!(refusal.why, Why::NoRule);
    assert_eq!(refusal.host, "evil.com");
}

#[tokio::test]
async fn the_operators_own_address_is_reached_with_a_permission() {
    let (mut tasks, ca) = (JoinSet::new(), TestCa::new());
    let address = tls_server(&ca, "IP:127.0.0.1", &mut tasks).await;
    let url = format!("https://{address}/");
    let target = bulkhead_egress::Target::from_url(&url, bulkhead_egress::Scheme::WEB).unwrap();
    let grant = Grant::operator(&target);
    let tls = Tls::with_extra(Some(&ca.pem())).unwrap();
    assert!(
        get(
            &permitting(&silent(), &["127.0.0.1"]),
            tls.clone(),
            grant.clone(),
            &url
        )
        .await
        .is_ok()
    );
    let error = get(&permitting(&silent(), &[]), tls, grant, &url)
        .await
        .unwrap_err();
    assert!(
        EgressError::find(&*error)
            .and_then(EgressError::refusal)
            .is_some()
    );
}

#[test]
fn extra_authorities_must_be_certificates() {
    assert!(Tls::with_extra(Some(b"not PEM")).is_err());
    assert!(
        Tls::with_extra(Some(
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        ))
        .is_err()
    );
}

/// N23: run as a child with proxy variables that lead to a closed port, the connection is made all the same.
#[test]
fn n23_proxy_variables_of_the_environment_are_ignored() {
    let dead = "http://127.0.0.1:1";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "connector::n23_child"])
        .envs(
            [
                "HTTP_PROXY",
                "HTTPS_PROXY",
                "ALL_PROXY",
                "http_proxy",
                "https_proxy",
                "all_proxy",
            ]
            .map(|name| (name, dead)),
        )
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[tokio::test]
#[ignore = "run by n23_proxy_variables_of_the_environment_are_ignored with its environment"]
async fn n23_child() {
    let (mut tasks, ca) = (JoinSet::new(), TestCa::new());
    let port = tls_server(&ca, "DNS:good.test.com", &mut tasks)
        .await
        .port();
    let dns = DnsServer::start(|_, _| reply(&["127.0.0.1"]));
    let grant = rules(&[&format!("good.test.com:{port}")]);
    let tls = Tls::with_extra(Some(&ca.pem())).unwrap();
    let url = format!("https://good.test.com:{port}/");
    let body = get(&permitting(&dns, &["good.test.com"]), tls, grant, &url)
        .await
        .unwrap();
    assert_eq!(body, "good.test.com");
}

#[tokio::test]
async fn no_name_server_is_an_error_in_words() {
    let egress = Egress::new(EgressConfig::default(), DnsResolver::with_servers(&[]));
    let error = get(
        &egress,
        Tls::system().unwrap(),
        rules(&["good.com"]),
        "https://good.com/",
    )
    .await
    .unwrap_err();
    let found = EgressError::find(&*error).unwrap();
    assert!(
        found
            .source()
            .unwrap()
            .to_string()
            .contains("/etc/resolv.conf")
    );
}
