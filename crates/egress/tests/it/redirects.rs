//! N21: redirects from a real server; each hop is decided anew.

use std::{convert::Infallible, net::SocketAddr};

use bulkhead_egress::{
    Connector, Egress, EgressError, Grant, Origin, Redirects, Scheme, Target, Tls, Why,
};
use http::{Request, Response, header::LOCATION};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};
use url::Url;

use crate::support::{
    dns::{DnsServer, reply},
    permitting, rules,
};

/// Redirects `/to?<location>` there, `/loop` to itself, `/count/N` to `/count/N+1`; answers `/done`.
async fn server(tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                let path = request.uri().path().to_owned();
                let next = match path.strip_prefix("/count/").map(str::parse::<u32>) {
                    Some(Ok(n)) => Some(format!("/count/{}", n + 1)),
                    _ if path == "/loop" => Some("/loop#again".to_owned()),
                    _ => request.uri().query().map(ToOwned::to_owned),
                };
                let response = match next {
                    Some(next) => Response::builder().status(302).header(LOCATION, next),
                    None => Response::builder().status(200),
                };
                Ok::<_, Infallible>(response.body(Empty::<Bytes>::new()).unwrap())
            });
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    });
    address
}

/// Follows redirects as `fetch` will: a hop is a new target and a new connection.
async fn fetch(egress: &Egress, grant: &Grant, start: &str) -> Result<(u8, u16), EgressError> {
    let connector = Connector::new(egress.clone(), Tls::system().unwrap(), grant.clone());
    let mut url = Url::parse(start).unwrap();
    let mut redirects = Redirects::new(url.clone(), Scheme::WEB, 20);
    let mut target = Target::from_parsed(&url, Scheme::WEB).map_err(EgressError::Refused)?;
    loop {
        let link = connector.connect(&target).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(link))
            .await
            .unwrap();
        let path = url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        let request = Request::get(path)
            .header("host", target.host().to_string())
            .body(Empty::<Bytes>::new())
            .unwrap();
        let (response, _) = tokio::join!(sender.send_request(request), async {
            tokio::time::timeout(std::time::Duration::from_millis(300), connection).await
        });
        let response = response.unwrap();
        let Some(location) = response.headers().get(LOCATION) else {
            return Ok((redirects.followed(), response.status().as_u16()));
        };
        let hop = redirects
            .follow(location.as_bytes())
            .map_err(EgressError::Refused)?;
        (url, target) = (hop.url, hop.target);
        let _ = response.into_body().collect().await;
    }
}

async fn why(egress: &Egress, grant: &Grant, start: &str) -> Why {
    match fetch(egress, grant, start).await {
        Err(EgressError::Refused(decision)) => decision.why,
        other => panic!("{start}: {other:?}"),
    }
}

#[tokio::test]
async fn n21_every_hop_is_decided_anew() {
    let mut tasks = JoinSet::new();
    let address = server(&mut tasks).await;
    let port = address.port();
    let dns = DnsServer::start(|name, _| match name {
        "private.test.com" => reply(&["10.0.0.1"]),
        _ => reply(&["127.0.0.1"]),
    });
    let egress = permitting(&dns, &["good.test.com", "also.test.com"]);
    let allow = |host: &str| format!("{host}:{port}");
    let grant = rules(&[
        &allow("good.test.com"),
        &allow("also.test.com"),
        &allow("private.test.com"),
    ]);
    let base = format!("http://good.test.com:{port}");
    let to = |place: &str| format!("{base}/to?{place}");

    assert_eq!(
        fetch(
            &egress,
            &grant,
            &to(&format!("http://also.test.com:{port}/done"))
        )
        .await
        .unwrap(),
        (1, 200)
    );
    assert_eq!(
        why(
            &egress,
            &grant,
            &to(&format!("http://undeclared.test.com:{port}/"))
        )
        .await,
        Why::NoRule
    );
    assert_eq!(
        why(&egress, &grant, &to(&format!("http://127.0.0.1:{port}/"))).await,
        Why::AddressLiteral
    );
    assert_eq!(
        why(&egress, &grant, &to(&format!("http://[::1]:{port}/"))).await,
        Why::AddressLiteral
    );
    assert_eq!(
        why(&egress, &grant, &to(&format!("http://0x7f.1:{port}/"))).await,
        Why::AddressLiteral
    );
    assert_eq!(
        why(&egress, &grant, &to("//evil.test.com/")).await,
        Why::NoRule
    );
    assert_eq!(
        why(&egress, &grant, &to("\\\\evil.test.com/")).await,
        Why::NoRule
    );
    assert_eq!(
        why(
            &egress,
            &grant,
            &to(&format!("http://u:p@good.test.com:{port}/"))
        )
        .await,
        Why::Userinfo
    );
    assert_eq!(
        why(&egress, &grant, &to("file:///etc/passwd")).await,
        Why::Scheme("file".into())
    );
    assert_eq!(
        why(&egress, &grant, &to("http://good.test.com:99/")).await,
        Why::PortNotAllowed {
            allowed: vec![port]
        }
    );
    assert!(matches!(
        why(
            &egress,
            &grant,
            &to(&format!("http://private.test.com:{port}/"))
        )
        .await,
        Why::Address { .. }
    ));
}

#[tokio::test]
async fn n21_twenty_one_hops_and_loops_end() {
    let mut tasks = JoinSet::new();
    let port = server(&mut tasks).await.port();
    let dns = DnsServer::start(|_, _| reply(&["127.0.0.1"]));
    let egress = permitting(&dns, &["good.test.com"]);
    let grant = rules(&[&format!("good.test.com:{port}")]);
    let base = format!("http://good.test.com:{port}");
    assert_eq!(
        why(&egress, &grant, &format!("{base}/count/1")).await,
        Why::TooManyRedirects(20)
    );
    assert_eq!(
        why(&egress, &grant, &format!("{base}/loop")).await,
        Why::RedirectLoop
    );
}

/// N21: from TLS to clear text, even to an allowed place; and credentials stay with their origin.
#[test]
fn n21_a_redirect_never_leaves_tls_and_says_when_the_origin_changes() {
    let start = || Redirects::new(Url::parse("https://good.com/a/b").unwrap(), Scheme::WEB, 5);
    assert_eq!(
        start().follow(b"http://good.com/").unwrap_err().why,
        Why::Downgrade
    );
    let same = start().follow(b"../c?x").unwrap();
    assert_eq!(
        (same.url.as_str(), same.origin),
        ("https://good.com/c?x", Origin::Same)
    );
    assert_eq!(
        start().follow(b"https://good.com:8443/").unwrap().origin,
        Origin::Other
    );
    assert_eq!(
        start().follow(b"//evil/").unwrap().target.to_string(),
        "evil:443"
    );
    assert_eq!(
        start().follow(b"https://").unwrap_err().why,
        Why::BadRedirect
    );
    assert_eq!(start().follow(b"\xff").unwrap_err().why, Why::BadRedirect);
}
