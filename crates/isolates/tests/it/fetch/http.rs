//! HT rows: what goes out and what comes in.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use bulkhead_isolates::call_error::Code;
use bulkhead_test_isolates::net::{Server, Step};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use super::World;

const LIMIT: usize = 5 << 20;

async fn serving(steps: Vec<Step>) -> (Server, World, String) {
    let server = Server::start(move |_| steps.clone()).await;
    let world = World::good(server.port());
    let url = format!("http://good.test:{}/a?b=c#d", server.port());
    (server, world, url)
}

async fn answered(steps: Vec<Step>) -> Result<Value, (Code, String)> {
    let (_server, world, url) = serving(steps).await;
    world
        .get(&url)
        .await
        .map_err(|error| (error.code, error.message))
}

#[tokio::test]
async fn p4_a_request_goes_out_as_it_was_asked() {
    let (server, world, url) = serving(Step::response(
        "201 Made",
        "x-a: 1\r\nX-A: 2\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n",
        b"body",
    ))
    .await;
    let init = json!({ "method": "post", "headers": { "Content-Type": "a/b", "X-Test": "v" }, "body": "wörter" });
    let response = world.fetch(json!([url, init])).await.unwrap();
    let asked = &server.asked()[0];
    assert_eq!(asked.line(), "POST /a?b=c");
    assert_eq!(asked.body, "wörter".as_bytes());
    assert_eq!(asked.header("content-length"), Some("7"));
    assert_eq!(asked.header("content-type"), Some("a/b"));
    assert_eq!(asked.header("x-test"), Some("v"));
    assert_eq!(
        asked.header("accept-encoding"),
        Some("gzip, deflate, br, zstd")
    );
    assert_eq!(
        asked.header("host"),
        Some(format!("good.test:{}", server.port()).as_str())
    );
    let expected = json!({
        "status": 201, "statusText": "Made", "ok": true, "redirected": false, "body": "body", "bodyEncoding": "utf8",
        "url": format!("http://good.test:{}/a?b=c", server.port()),
        "headers": { "x-a": "1, 2", "content-length": "4" }, "setCookie": ["a=1", "b=2"],
    });
    assert_eq!(response, expected);
}

#[tokio::test]
async fn p4_the_forms_of_the_arguments() {
    let (server, world, url) = serving(Step::response("200 OK", "", b"")).await;
    world
        .fetch(json!([{ "url": url, "headers": [["a", "1"], ["a", "2"]] }]))
        .await
        .unwrap();
    let head = &server.asked()[0].head;
    assert!(
        head.contains("a: 1\r\n") && head.contains("a: 2\r\n"),
        "{head}"
    );
    let bad = [
        json!([]),
        json!([1]),
        json!([url, { "url": url }]),
        json!([{}]),
        json!([url, 5]),
        json!([url, {}, {}]),
        json!({}),
        json!([url, { "methods": "GET" }]),
        json!([url, { "method": "CONNECT" }]),
        json!([url, { "method": "TRACE" }]),
        json!([url, { "method": "G ET" }]),
        json!([url, { "method": "" }]),
        json!([url, { "body": "x" }]),
        json!([url, { "method": "POST", "body": {} }]),
        json!([url, { "headers": { "a": 1 } }]),
        json!([url, { "headers": 5 }]),
        json!([url, { "redirect": "sometimes" }]),
        json!([url, { "responseEncoding": "latin1" }]),
        json!([url, { "timeoutMs": 0 }]),
        json!([url, { "timeoutMs": 15_001 }]),
        json!([url, { "method": "POST", "body": "x", "bodyEncoding": "hex" }]),
        json!([format!("{url}{}", "x".repeat(9_000))]),
    ];
    for arguments in bad {
        let error = world.fetch(arguments.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::BadRequest, "{arguments}: {error}");
        assert!(error.message.starts_with("host.fetch"), "{error}");
    }
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn ht1_ht3_ht4_bad_headers_are_refused_before_anything_is_sent() {
    let (server, world, url) = serving(Step::response("200 OK", "", b"")).await;
    let bad = [
        ("a", "a\r\nX: b"),
        ("a", "a\n b"),
        ("a", "\0"),
        ("a", " a"),
        ("a b", "c"),
        (":path", "/"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "5"),
        ("transfer-encoding", "chunked\t"),
        ("Connection", "close"),
        ("Upgrade", "h2c"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Proxy-Authorization", "x"),
        ("Expect", "100-continue"),
        ("Keep-Alive", "1"),
        ("Accept-Encoding", "identity"),
        ("Host", "evil.test"),
    ];
    for (name, value) in bad {
        let error = world
            .fetch(json!([url, { "headers": { name: value } }]))
            .await
            .unwrap_err();
        assert_eq!(error.code, Code::BadRequest, "{name}: {value:?}");
        let pairs = json!([["ok", "1"], [name, value], [name, value]]);
        world
            .fetch(json!([url, { "headers": pairs }]))
            .await
            .unwrap_err();
    }
    assert!(server.asked().is_empty());
    assert_eq!(world.permits_asked(), 0);
}

#[tokio::test]
async fn p4_base64_both_ways() {
    let bytes: Vec<u8> = (0..=255).collect();
    let (server, world, url) = serving(Step::response("200 OK", "", &bytes)).await;
    let init = json!({ "method": "PUT", "body": "AAECA/8=", "bodyEncoding": "base64", "responseEncoding": "base64" });
    let response = world.fetch(json!([url, init])).await.unwrap();
    assert_eq!(server.asked()[0].body, [0, 1, 2, 3, 255]);
    assert_eq!(server.asked()[0].header("content-type"), None);
    assert_eq!(response["bodyEncoding"], "base64");
    let body = response["body"].as_str().unwrap();
    assert!(
        body.starts_with("AAECAwQF") && body.ends_with("/P3+/w=="),
        "{body}"
    );
    for wrong in ["AAECA/8", "AAECA_8=", "AAE CA/8=", "====", "AAECA/9="] {
        let init = json!({ "method": "PUT", "body": wrong, "bodyEncoding": "base64" });
        assert_eq!(
            world.fetch(json!([url, init])).await.unwrap_err().code,
            Code::BadRequest,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn ht6_a_bomb_ends_when_it_passes_the_limit() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..64 {
        gzip.write_all(&vec![0; 1 << 20]).unwrap();
    }
    // It never ends: whoever waits for its end waits for ever.
    let headers =
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n".to_vec();
    let steps = vec![
        Step::Bytes(headers),
        Step::Bytes(gzip.finish().unwrap()),
        Step::Wait(Duration::from_secs(60)),
    ];
    let started = Instant::now();
    let (code, message) = answered(steps).await.unwrap_err();
    assert_eq!(code, Code::Limit, "{message}");
    assert!(
        started.elapsed() < Duration::from_secs(9),
        "it was not waited for"
    );
}

#[tokio::test]
async fn ht8_the_limit_is_exact() {
    let whole = answered(Step::response("200 OK", "", &vec![b'x'; LIMIT]))
        .await
        .unwrap();
    assert_eq!(whole["body"].as_str().unwrap().len(), LIMIT);
    let (code, _) = answered(Step::response("200 OK", "", &vec![b'x'; LIMIT + 1]))
        .await
        .unwrap_err();
    assert_eq!(code, Code::Limit);
    let unannounced = |len| {
        let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        vec![Step::Bytes(head), Step::Bytes(vec![b'x'; len])]
    };
    answered(unannounced(LIMIT)).await.unwrap();
    assert_eq!(
        answered(unannounced(LIMIT + 1)).await.unwrap_err().0,
        Code::Limit
    );
}

#[tokio::test]
async fn ht8_a_length_that_is_too_large_is_refused_by_its_header() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\nx";
    let steps = [Step::text(head), vec![Step::Wait(Duration::from_secs(60))]].concat();
    let started = Instant::now();
    assert_eq!(answered(steps).await.unwrap_err().0, Code::Limit);
    assert!(started.elapsed() < Duration::from_secs(9));
    // Of a HEAD it is only what a GET would bring.
    let (_server, world, url) = serving(Step::text(head)).await;
    let response = world
        .fetch(json!([url, { "method": "HEAD" }]))
        .await
        .unwrap();
    assert_eq!(response["headers"]["content-length"], "10000000000");
    assert_eq!(response["body"], "");
}

#[tokio::test]
async fn ht8_endless_and_slow_bodies_end() {
    let head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    let endless = vec![
        Step::Bytes(head.clone()),
        Step::Forever(vec![b'x'; 1 << 16], Duration::ZERO),
    ];
    assert_eq!(answered(endless).await.unwrap_err().0, Code::Limit);
    for slow in [
        vec![
            Step::Bytes(head),
            Step::Forever(b"x".to_vec(), Duration::from_millis(50)),
        ],
        vec![Step::Forever(b"H".to_vec(), Duration::from_secs(60))],
        vec![Step::Wait(Duration::from_secs(60))],
        vec![Step::Forever(
            b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(),
            Duration::from_millis(1),
        )],
    ] {
        let (_server, world, url) = serving(slow).await;
        let world = world.within(Duration::from_millis(400));
        let started = Instant::now();
        let (code, message) = world.refused(&url).await;
        assert_eq!(code, Code::Timeout, "{message}");
        let took = started.elapsed();
        assert!(
            took >= Duration::from_millis(400) && took < Duration::from_secs(5),
            "{took:?}"
        );
    }
}

#[tokio::test]
async fn ht8_a_plugins_own_time_limit_only_lowers() {
    let (_server, world, url) = serving(vec![Step::Wait(Duration::from_secs(60))]).await;
    let error = world
        .fetch(json!([url, { "timeoutMs": 100 }]))
        .await
        .unwrap_err();
    assert_eq!(error.code, Code::Timeout);
    assert!(error.message.contains("100 ms"), "{error}");
    let world = world.within(Duration::from_millis(200));
    let error = world
        .fetch(json!([url, { "timeoutMs": 9_000 }]))
        .await
        .unwrap_err();
    assert!(error.message.contains("200 ms"), "{error}");
}

#[tokio::test]
async fn ht9_heads_that_are_too_large_or_broken_are_errors() {
    let head = |lines: String| {
        Step::text(format!(
            "HTTP/1.1 200 OK\r\n{lines}content-length: 0\r\n\r\n"
        ))
    };
    let many = |count| {
        (0..count)
            .map(|n| format!("x-{n}: v\r\n"))
            .collect::<String>()
    };
    answered(head(many(190))).await.unwrap();
    let broken = [
        head(many(10_000)),
        head(many(201)),
        head(format!("x: {}\r\n", "v".repeat(1 << 20))),
        head("x: folded\r\n line\r\n".into()),
        head("no colon\r\n".into()),
        head("na me: v\r\n".into()),
        head("x: a\0b\r\n".into()),
        Step::text("garbage\r\n\r\n"),
        Step::text("HTTP/9.9 200 OK\r\n\r\n"),
        Step::text(""),
        Step::text("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!"),
        Step::text("HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello"),
        Step::text("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello"),
        Step::text("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\ncut short"),
        Step::text("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
    ];
    for steps in broken {
        let shown = format!("{steps:?}").chars().take(80).collect::<String>();
        let (code, message) = answered(steps).await.unwrap_err();
        assert_eq!(code, Code::Failed, "{shown}: {message}");
    }
}

#[tokio::test]
async fn ht12_s16_text_is_utf8_with_replacements_and_without_its_mark() {
    let cases: [(&[u8], &str); 6] = [
        (b"\xef\xbb\xbf{\"a\":1}", "{\"a\":1}"),
        (b"a\xffb", "a\u{fffd}b"),
        (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
        (b"\xe2\x82", "\u{fffd}"),
        (
            "\u{2028}\u{2029}\u{feff}".as_bytes(),
            "\u{2028}\u{2029}\u{feff}",
        ),
        (b"", ""),
    ];
    for (bytes, text) in cases {
        for label in [
            "",
            "; charset=iso-8859-1",
            "; charset=utf-16le",
            "; charset=\"nonsense",
        ] {
            let headers = format!("content-type: text/plain{label}\r\n");
            let response = answered(Step::response("200 OK", &headers, bytes))
                .await
                .unwrap();
            assert_eq!(response["body"], text, "{label}");
        }
    }
}

#[tokio::test]
async fn ht12_bodies_come_decompressed_and_unknown_codings_are_errors() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(b"hello").unwrap();
    let gzip = gzip.finish().unwrap();
    let response = answered(Step::response(
        "200 OK",
        "Content-Encoding: GZIP\r\n",
        &gzip,
    ))
    .await
    .unwrap();
    assert_eq!(response["body"], "hello");
    assert_eq!(
        response["headers"],
        json!({ "content-encoding": "GZIP" }),
        "the length was another body's"
    );
    for coding in ["compress", "gzip, gzip, gzip", "br", "zstd", "deflate"] {
        let headers = format!("content-encoding: {coding}\r\n");
        let (code, message) = answered(Step::response("200 OK", &headers, &gzip))
            .await
            .unwrap_err();
        assert_eq!(code, Code::Failed, "{coding}: {message}");
    }
}

#[tokio::test]
async fn p21_what_was_sent_and_received_is_counted() {
    let (_server, world, url) = serving(Step::response("200 OK", "", b"four")).await;
    let context = world.context();
    let arguments = json!([url, { "method": "POST", "body": "three" }]);
    world.fetch_in(&context, arguments).await.unwrap();
    let used = context.counters().used();
    assert_eq!(
        (
            used.fetches,
            used.fetch_sent_bytes,
            used.fetch_received_bytes
        ),
        (1, 5, 4)
    );
}
