//! Plain HTTP through the proxy.

use std::time::{Duration, Instant};

use bulkhead_door::Asked;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use crate::support::{TestDoor, Upstream, open, raw, read_until};

async fn with_upstream(tasks: &mut JoinSet<()>) -> (TestDoor, Upstream, String) {
    let upstream = Upstream::default();
    let authority = format!("good.test.com:{}", upstream.start(tasks).await.port());
    (open(&[&authority]), upstream, authority)
}

#[tokio::test]
async fn hop_by_hop_fields_end_here_and_the_host_is_the_checked_one() {
    let mut tasks = JoinSet::new();
    let (mut test, _, authority) = with_upstream(&mut tasks).await;
    let request = format!(
        "GET http://GOOD.test.com.:{port}/show?a=b HTTP/1.1\r\nHost: evil.example\r\nConnection: close, x-private\r\nX-Private: 1\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nUpgrade: h2c\r\nKeep-Alive: 1\r\nX-Kept: yes\r\n\r\n",
        port = authority.rsplit(':').next().unwrap()
    );
    let answer = raw(test.proxy, &request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("GET /show?a=b HTTP/1.1\n"), "{answer}");
    assert!(
        answer.contains(&format!("host: {authority}\n")) && !answer.contains("evil.example"),
        "{answer}"
    );
    assert!(answer.contains("x-kept: yes\n"));
    for gone in [
        "x-private",
        "proxy-authorization",
        "proxy-connection",
        "te: trailers",
        "h2c",
        "keep-alive",
        "x-hop",
    ] {
        assert!(!answer.contains(gone), "{gone} in {answer}");
    }
    let record = test.log.recv().await.unwrap();
    assert!(record.allowed && record.asked == Asked::Request);
}

#[tokio::test]
async fn other_forms_of_requests_are_bad_requests_in_words() {
    let test = open(&["good.test.com"]);
    for (request, words) in [
        (
            "GET / HTTP/1.1\r\nHost: good.test.com\r\n\r\n",
            "send the whole URL",
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: good.test.com\r\n\r\n",
            "send the whole URL",
        ),
        (
            "GET https://good.test.com/ HTTP/1.1\r\nHost: x\r\n\r\n",
            "ask this proxy for a tunnel",
        ),
        (
            "GET ftp://good.test.com/ HTTP/1.1\r\nHost: x\r\n\r\n",
            "ask this proxy for a tunnel",
        ),
    ] {
        let answer = raw(test.proxy, request).await;
        assert!(
            answer.starts_with("HTTP/1.1 400") && answer.contains(words),
            "{request}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_refused_request_never_leaves() {
    let test = open(&["good.test.com:443"]);
    for url in [
        "http://evil.example/",
        "http://good.test.com/",
        "http://good.test.com:443/",
        "http://127.0.0.1/",
        "http://[::1]/",
    ] {
        let answer = raw(
            test.proxy,
            &format!("GET {url} HTTP/1.1\r\nHost: x\r\n\r\n"),
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{url}: {answer}");
    }
}

/// Request smuggling: what is ambiguous is refused or made unambiguous, byte by byte at the upstream.
#[tokio::test]
async fn ambiguous_lengths_do_not_smuggle_a_second_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("good.test.com:{}", listener.local_addr().unwrap().port());
    let test = open(&[&authority]);
    let head =
        |fields: &str| format!("POST http://{authority}/a HTTP/1.1\r\nHost: x\r\n{fields}\r\n");

    // Both lengths: whatever is done with it, the upstream sees one length and one request.
    let both = head("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n")
        + "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let asking = raw(test.proxy, &both);
    let seeing = async {
        let Ok(Ok((mut stream, _))) = timeout(Duration::from_secs(2), listener.accept()).await
        else {
            return String::new();
        };
        let seen = read_until(&mut stream, "\r\n\r\n").await;
        let rest = timeout(
            Duration::from_millis(300),
            read_until(&mut stream, "0\r\n\r\n"),
        )
        .await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await;
        seen + &rest.unwrap_or_default()
    };
    let (_, seen) = tokio::join!(asking, seeing);
    let lower = seen.to_lowercase();
    assert!(
        !(lower.contains("content-length") && lower.contains("transfer-encoding")),
        "{seen}"
    );
    assert!(!seen.contains("smuggled"), "{seen}");

    for fields in [
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 5\r\n",
        "Content-Length: +4\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length : 4\r\n",
        "X: a\r\n b\r\nContent-Length\0: 4\r\n",
    ] {
        let answer = raw(test.proxy, &(head(fields) + "abcd")).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{fields:?}: {answer}");
    }
}

/// Case 34: the first event arrives while the upstream still waits with the second.
#[tokio::test]
async fn case_34_events_are_not_buffered() {
    let mut tasks = JoinSet::new();
    let (test, upstream, authority) = with_upstream(&mut tasks).await;
    let mut stream = TcpStream::connect(test.proxy).await.unwrap();
    let started = Instant::now();
    let request = format!("GET http://{authority}/sse HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let first = read_until(&mut stream, "data: one\n\n").await;
    assert!(first.contains("text/event-stream"), "{first}");
    // The bound is 100 ms; the slack is for a machine with other work.
    assert!(
        started.elapsed() < Duration::from_millis(900),
        "{:?}",
        started.elapsed()
    );
    upstream.go_on.notify_one();
    read_until(&mut stream, "data: two\n\n").await;
}

/// Case 34: an upload in chunks is passed on as it comes, and comes back before it has ended.
#[tokio::test]
async fn case_34_chunked_uploads_stream() {
    let mut tasks = JoinSet::new();
    let (test, _, authority) = with_upstream(&mut tasks).await;
    let mut stream = TcpStream::connect(test.proxy).await.unwrap();
    let head = format!(
        "POST http://{authority}/upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"5\r\nfirst\r\n").await.unwrap();
    read_until(&mut stream, "first\r\n").await;
    stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.unwrap();
    let rest = read_until(&mut stream, "0\r\n\r\n").await;
    assert!(rest.contains("second"), "{rest}");
}

/// Case 34: ranges and lengths are kept.
#[tokio::test]
async fn case_34_ranges_and_lengths_are_kept() {
    let mut tasks = JoinSet::new();
    let (test, _, authority) = with_upstream(&mut tasks).await;
    let ask = async |method: &str, fields: &str| {
        let request = format!(
            "{method} http://{authority}/range HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n"
        );
        raw(test.proxy, &request).await.to_lowercase()
    };
    let part = ask("GET", "Range: bytes=2-4\r\n").await;
    assert!(
        part.starts_with("http/1.1 206") && part.contains("content-range: bytes 2-4/10"),
        "{part}"
    );
    assert!(
        part.contains("content-length: 3") && part.ends_with("234"),
        "{part}"
    );
    let head = ask("HEAD", "").await;
    assert!(
        head.contains("content-length: 10") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let length = ask("GET", "").await;
    assert!(
        length.contains("content-length: 10") && !length.contains("chunked"),
        "{length}"
    );
}
