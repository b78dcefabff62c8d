//! CONNECT: tunnels, and what is refused.

use std::{process::Command, sync::Arc, time::Duration};

use bulkhead_door::{Asked, DoorLimits};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::support::{Upstream, connect, open, open_with, raw, read_all, read_until, tls::TestCa};

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_and_half_closes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("good.test.com:{}", listener.local_addr().unwrap().port());
    let mut test = open(&[&authority]);
    let (mut inside, head) = connect(test.proxy, &authority).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let (mut outside, _) = listener.accept().await.unwrap();

    // Several megabytes up, every byte counted, then the end; only then the answer comes down.
    let sent: Vec<u8> = (0..5_000_000u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    let copy = sent.clone();
    let up = async {
        inside.write_all(&copy).await.unwrap();
        inside.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (_, count) = tokio::join!(up, outside.read_to_end(&mut received));
    assert_eq!(count.unwrap(), sent.len());
    assert!(received == sent, "the bytes are the same");
    outside.write_all(b"after your end").await.unwrap();
    drop(outside);
    assert_eq!(read_all(&mut inside).await, "after your end");

    let record = test.log.recv().await.unwrap();
    assert!(record.allowed && record.asked == Asked::Tunnel && record.host == "good.test.com");
    assert_eq!(record.why, format!("the rule `{authority}` allows it"));
}

#[tokio::test]
async fn what_the_client_sends_at_once_is_not_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("good.test.com:{}", listener.local_addr().unwrap().port());
    let test = open(&[&authority]);
    let mut inside = tokio::net::TcpStream::connect(test.proxy).await.unwrap();
    let both = format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\nearly");
    inside.write_all(both.as_bytes()).await.unwrap();
    let (mut outside, _) = listener.accept().await.unwrap();
    assert_eq!(read_until(&mut outside, "early").await, "early");
}

/// The answer says what was refused, which rule is missing, and who can add it.
#[tokio::test]
async fn a_refusal_names_the_missing_rule_and_who_can_add_it() {
    let mut test = open(&["good.test.com"]);
    let answer = raw(
        test.proxy,
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    for part in [
        "evil.example:443",
        "no rule of the allow-list names it",
        "`--allow evil.example:443`",
        "may change the workflow",
    ] {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    let record = test.log.recv().await.unwrap();
    assert!(!record.allowed && record.host == "evil.example" && record.port == 443);
    assert!(
        test.names.asked().is_empty(),
        "a refused name is not resolved"
    );
}

/// N1, N9, N12, N19, case 52 as they look through the proxy.
#[tokio::test]
async fn hostile_authorities_are_refused() {
    let test = open(&["good.test.com", "private.test.com", "localhost"]);
    for (authority, status) in [
        ("good.test.com:8443", "403"),
        ("127.0.0.1:443", "403"),
        ("[::1]:443", "403"),
        ("0x7f.1:443", "403"),
        ("169.254.169.254:80", "403"),
        ("localhost:443", "403"),
        ("private.test.com:443", "403"),
        ("good.test.com", "403"),
        ("good.test.com:0", "403"),
    ] {
        let answer = raw(
            test.proxy,
            &format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"),
        )
        .await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{authority}: {answer}"
        );
    }
    let answer = raw(
        test.proxy,
        "CONNECT user@good.test.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_bad_gateway_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("gone.test.com:{}", listener.local_addr().unwrap().port());
    drop(listener);
    let test = open(&[&authority, "nowhere.example"]);
    let answer = raw(
        test.proxy,
        &format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n"),
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 502") && answer.contains("refused"),
        "{answer}"
    );
    let answer = raw(
        test.proxy,
        "CONNECT nowhere.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 502") && answer.contains("does not exist"),
        "{answer}"
    );
}

/// Case 34: a WebSocket is bytes in a tunnel; its handshake and frames go through untouched.
/// D5, case 34: what is tunnelled is not looked into, so no protocol breaks.
#[tokio::test]
async fn case_34_a_websocket_works_through_a_tunnel() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("good.test.com:{}", listener.local_addr().unwrap().port());
    let test = open(&[&authority]);
    let (mut inside, _) = connect(test.proxy, &authority).await;
    let (mut outside, _) = listener.accept().await.unwrap();
    let ask = "GET /chat HTTP/1.1\r\nHost: good.test.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    inside.write_all(ask.as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut outside, "\r\n\r\n").await, ask);
    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    outside.write_all(answer.as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut inside, "\r\n\r\n").await, answer);
    for frame in [
        &[0x81, 0x02, b'h', b'i'][..],
        &[0x89, 0x00],
        &[0x88, 0x02, 0x03, 0xe8],
    ] {
        outside.write_all(frame).await.unwrap();
        let mut got = vec![0; frame.len()];
        inside.read_exact(&mut got).await.unwrap();
        assert_eq!(got, frame);
    }
}

/// Case 34: HTTP/2 and the test's own authority, with a real client (curl) that was told only of the proxy.
/// D5, case 34: a foreign client negotiates HTTP/2 with the upstream itself.
#[tokio::test]
async fn case_34_curl_speaks_http_2_over_tls_through_the_proxy() {
    let (mut tasks, ca) = (JoinSet::new(), TestCa::new());
    let mut config = Arc::unwrap_or_clone(ca.server("DNS:good.test.com"));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let port = Upstream::default()
        .start_tls(Arc::new(config), &mut tasks)
        .await
        .port();
    let test = open(&[&format!("good.test.com:{port}")]);
    let authority_file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(authority_file.path(), ca.pem()).unwrap();
    let (proxy, path) = (
        format!("http://{}", test.proxy),
        authority_file.path().to_owned(),
    );
    let curl = move || {
        Command::new("curl")
            .env_clear()
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "20",
                "--http2",
                "--proxy",
                &proxy,
                "--cacert",
            ])
            .arg(path)
            .arg(format!("https://good.test.com:{port}/show"))
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(curl).await.unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{err}");
    assert!(out.contains("HTTP/2.0"), "{out}");
}

#[tokio::test]
async fn a_silent_tunnel_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("good.test.com:{}", listener.local_addr().unwrap().port());
    let limits = DoorLimits {
        idle: Duration::from_millis(300),
        ..DoorLimits::default()
    };
    let test = open_with(&[&authority], limits);
    let (mut inside, _) = connect(test.proxy, &authority).await;
    let (mut outside, _) = listener.accept().await.unwrap();
    // Traffic in one direction keeps it open, longer than the limit.
    let started = Instant::now();
    for _ in 0..8 {
        outside.write_all(b".").await.unwrap();
        assert_eq!(inside.read_u8().await.unwrap(), b'.');
        tokio::time::sleep(Duration::from_millis(80)).await;
    }
    assert!(started.elapsed() > limits.idle);
    assert_eq!(read_all(&mut inside).await, "");
    assert_eq!(read_all(&mut outside).await, "");
}

#[tokio::test]
async fn further_connections_wait_for_room() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("good.test.com:{}", listener.local_addr().unwrap().port());
    let limits = DoorLimits {
        connections: 2,
        ..DoorLimits::default()
    };
    let test = open_with(&[&authority], limits);
    let first = connect(test.proxy, &authority).await;
    let _second = connect(test.proxy, &authority).await;
    let third = timeout(Duration::from_millis(400), connect(test.proxy, &authority)).await;
    assert!(third.is_err(), "a tunnel counts as long as it lives");
    drop(first);
    // The outer ends must go too, as a server's would when its client closes: that of the first, and that
    // of the attempt given up above, which waited in the queue.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { while listener.accept().await.is_ok() {} });
    let third = timeout(Duration::from_secs(20), connect(test.proxy, &authority)).await;
    assert!(third.unwrap().1.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn stopping_waits_for_tunnels_and_then_closes_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("good.test.com:{}", listener.local_addr().unwrap().port());
    let test = open(&[&authority]);
    let (mut inside, _) = connect(test.proxy, &authority).await;
    let (mut outside, _) = listener.accept().await.unwrap();
    let stopping = test.door.stop(Duration::from_millis(500));
    let during = async {
        outside.write_all(b"still open").await.unwrap();
        assert_eq!(read_until(&mut inside, "open").await, "still open");
    };
    tokio::join!(stopping, during);
    assert_eq!(read_all(&mut inside).await, "");
    assert!(
        tokio::net::TcpStream::connect(test.proxy).await.is_err(),
        "the listener is gone"
    );
}

/// A flood of refusals: few records, and their counts are the number of refusals.
#[tokio::test]
async fn a_flood_of_refusals_does_not_flood_the_log() {
    let mut test = open(&[]);
    for n in 0..300 {
        let authority = format!("evil{}.example:443", n % 100);
        let answer = raw(
            test.proxy,
            &format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n"),
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 403"));
    }
    assert_eq!(test.door.stats().refused, 300);
    let collecting = async {
        let (mut records, mut count) = (0, 0);
        while count < 300 {
            let record = test.log.recv().await.unwrap();
            records += 1;
            count += record.count;
        }
        (records, count)
    };
    let (records, count) = timeout(Duration::from_secs(20), collecting).await.unwrap();
    assert_eq!(count, 300);
    assert!(records < 300, "{records}");
}

/// Case 50: with an empty list everything is refused.
#[tokio::test]
async fn case_50_an_empty_list_lets_nothing_through() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("good.test.com:{}", listener.local_addr().unwrap().port());
    let test = open(&[]);
    let (_, head) = connect(test.proxy, &authority).await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let answer = raw(
        test.proxy,
        &format!("GET http://{authority}/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(
        timeout(Duration::from_millis(200), listener.accept())
            .await
            .is_err()
    );
}
