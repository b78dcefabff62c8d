//! HT11: a server proves that it is who it is, and there is no way around.

use bulkhead_egress::Tls;
use bulkhead_isolates::{call_error::Code, fetch::FetchLimits};
use bulkhead_test_isolates::{
    net::{Names, Server, Step},
    tls::{TestCa, Validity},
};
use serde_json::json;

use super::World;

fn trusting(ca: &TestCa, port: u16) -> World {
    let rule = format!("good.test:{port}");
    let tls = Tls::with_extra(Some(&ca.pem())).unwrap();
    let names = Names::loopback(&["good.test"]);
    World::with(names, &["good.test"], &[&rule], tls, FetchLimits::default())
}

#[tokio::test]
async fn ht11_only_a_good_certificate_for_this_very_name_is_taken() {
    let (ca, stranger) = (TestCa::new(), TestCa::new());
    let cases = [
        (&ca, "DNS:good.test", Validity::Today, true),
        (&ca, "DNS:good.test", Validity::UntilYesterday, false),
        (&ca, "DNS:other.test", Validity::Today, false),
        (&stranger, "DNS:good.test", Validity::Today, false),
    ];
    for (issuer, names, validity, is_good) in cases {
        let config = issuer.server(names, validity);
        let server = Server::tls(config, |_| Step::response("200 OK", "", b"safe")).await;
        let world = trusting(&ca, server.port());
        let result = world
            .get(&format!("https://good.test:{}/", server.port()))
            .await;
        assert_eq!(result.is_ok(), is_good, "{names} {validity:?}: {result:?}");
        if let Err(error) = result {
            assert_eq!(error.code, Code::Failed, "{error}");
            assert!(server.asked().is_empty(), "nothing was sent");
        }
    }
}

#[tokio::test]
async fn ht11_tls_1_0_is_refused() {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        task::JoinSet,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 4_096];
        let _ = stream.read(&mut hello).await;
        // A ServerHello of TLS 1.0: version, random, no session, TLS_RSA_WITH_AES_128_CBC_SHA, no compression.
        let mut body = vec![2, 0, 0, 38, 3, 1];
        body.extend([7; 32]);
        body.extend([0, 0, 0x2f, 0]);
        let mut record = vec![22, 3, 1, 0, u8::try_from(body.len()).unwrap()];
        record.extend(body);
        let _ = stream.write_all(&record).await;
        let _ = stream.read(&mut hello).await;
    });
    let world = trusting(&TestCa::new(), port);
    let (code, message) = world.refused(&format!("https://good.test:{port}/")).await;
    assert_eq!(code, Code::Failed, "{message}");
    assert!(message.contains("TLS"), "{message}");
}

#[tokio::test]
async fn ht11_no_option_turns_the_check_off() {
    let world = World::good(1);
    for name in [
        "insecure",
        "rejectUnauthorized",
        "agent",
        "dispatcher",
        "proxy",
        "tls",
        "ca",
    ] {
        let error = world
            .fetch(json!(["https://good.test:1/", { name: false }]))
            .await
            .unwrap_err();
        assert_eq!(error.code, Code::BadRequest, "{name}");
        assert!(error.message.contains(name), "{error}");
    }
}
