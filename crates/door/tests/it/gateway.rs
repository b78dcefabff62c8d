//! The model gateway behind a forward, as a sandbox sees it: TCP inside, a Unix socket, the gateway, TLS
//! outside. Everything that comes back is searched for the credential (H7).

use std::{
    convert::Infallible,
    net::{SocketAddr, TcpListener as StdTcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use bulkhead_door::{
    Door, DoorLimits, DoorListeners, Forward,
    model::{
        ApiStyle, HeaderForm, ModelGateway, ModelGatewayConfig, ModelGatewayError, ModelLimits,
        ModelUpstream, ModelUpstreamError, TokenCheck, TokenRefusal,
    },
};
use bulkhead_egress::Tls;
use futures::future::BoxFuture;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpStream, UnixListener},
    task::JoinSet,
};

use crate::support::{
    Upstream, door, egress, name_server::DnsServer, raw, read_until, tls::TestCa, zone,
};

const TOKEN: &str = "phase-token-0123456789";
const CREDENTIAL: &str = "sk-real-credential-42";

struct Tokens;

impl TokenCheck for Tokens {
    fn check<'a>(
        &'a self,
        token: &'a str,
        upstream: &'a str,
    ) -> BoxFuture<'a, Result<(), TokenRefusal>> {
        Box::pin(async move {
            match (token, upstream) {
                (TOKEN, "forbidden") => Err(TokenRefusal::NotForThisUpstream),
                (TOKEN, _) => Ok(()),
                _ => Err(TokenRefusal::Unknown),
            }
        })
    }
}

/// The whole way from the sandbox's port to the upstreams.
struct Way {
    inside: SocketAddr,
    upstream: Upstream,
    _door: Door,
    _tasks: JoinSet<()>,
    _dir: tempfile::TempDir,
    _names: DnsServer,
}

impl Way {
    async fn new() -> Self {
        let (mut tasks, ca, names, upstream) =
            (JoinSet::new(), TestCa::new(), zone(), Upstream::default());
        let port = upstream
            .start_tls(ca.server("DNS:models.test.com"), &mut tasks)
            .await
            .port();
        let clear = upstream.start(&mut tasks).await;
        let base = format!("https://models.test.com:{port}/base/");
        let make = |name, base: &str, form, style| {
            ModelUpstream::new(name, base, form, style, CREDENTIAL.to_owned().into()).unwrap()
        };
        let gateway = ModelGateway::new(ModelGatewayConfig {
            upstreams: vec![
                make("anthropic", &base, HeaderForm::XApiKey, ApiStyle::Anthropic),
                make("openai", &base, HeaderForm::Bearer, ApiStyle::OpenAi),
                make("google", &base, HeaderForm::XGoogApiKey, ApiStyle::Google),
                make("forbidden", &base, HeaderForm::Bearer, ApiStyle::OpenAi),
                make(
                    "fake",
                    &format!("http://{clear}"),
                    HeaderForm::XApiKey,
                    ApiStyle::Anthropic,
                ),
                make("open", &base, HeaderForm::None, ApiStyle::OpenAi),
                make(
                    "azure",
                    &base,
                    HeaderForm::Other(http::HeaderName::from_static("api-key")),
                    ApiStyle::OpenAi,
                ),
                make(
                    "gone",
                    "https://gone.test.com:9/",
                    HeaderForm::XApiKey,
                    ApiStyle::Anthropic,
                ),
                make(
                    "private",
                    "https://private.test.com/",
                    HeaderForm::XApiKey,
                    ApiStyle::Anthropic,
                ),
            ],
            egress: egress(&names),
            tls: Tls::with_extra(Some(&ca.pem())).unwrap(),
            tokens: Arc::new(Tokens),
            limits: ModelLimits::default(),
        })
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.sock");
        serve(gateway, UnixListener::bind(&path).unwrap(), &mut tasks);
        let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let inside = listener.local_addr().unwrap();
        let listeners = DoorListeners {
            forwards: vec![Forward { listener, path }],
            ..DoorListeners::default()
        };
        let (door, _) = door(&[], DoorLimits::default(), &names, listeners);
        Self {
            inside,
            upstream,
            _door: door,
            _tasks: tasks,
            _dir: dir,
            _names: names,
        }
    }

    /// One request on a connection of its own; the answer must not hold the credential anywhere.
    async fn ask(&self, line: &str, fields: &str) -> String {
        let request =
            format!("{line} HTTP/1.1\r\nHost: 127.0.0.1:7080\r\nConnection: close\r\n{fields}\r\n");
        let answer = raw(self.inside, &request).await;
        assert!(
            !answer.contains(CREDENTIAL),
            "the credential came back: {answer}"
        );
        answer
    }
}

fn serve(gateway: ModelGateway, socket: UnixListener, tasks: &mut JoinSet<()>) {
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = socket.accept().await.unwrap();
            let gateway = gateway.clone();
            connections.spawn(async move {
                let service = service_fn(move |request| {
                    let gateway = gateway.clone();
                    async move { Ok::<_, Infallible>(gateway.handle(request).await) }
                });
                let _ = http1::Builder::new()
                    .half_close(true)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
}

/// In each of the four places: the token opens the gateway, reaches no upstream, and is replaced.
#[tokio::test]
async fn the_token_is_replaced_by_the_credential_wherever_it_stands() {
    let way = Way::new().await;
    let stars = "*".repeat(CREDENTIAL.len());
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for (upstream, query, fields, expected) in [
        (
            "anthropic",
            "",
            format!("x-api-key: {TOKEN}\r\n"),
            "x-api-key: ",
        ),
        ("anthropic", "", bearer.clone(), "x-api-key: "),
        ("openai", "", bearer, "authorization: Bearer "),
        (
            "google",
            "",
            format!("x-goog-api-key: {TOKEN}\r\n"),
            "x-goog-api-key: ",
        ),
        (
            "google",
            &format!("?alt=sse&key={TOKEN}"),
            String::new(),
            "x-goog-api-key: ",
        ),
        (
            "openai",
            "",
            format!(
                "x-api-key: own\r\nAuthorization: bearer {TOKEN}\r\nX-Copy: a {TOKEN} b\r\nCookie: t={TOKEN}\r\n"
            ),
            "authorization: Bearer ",
        ),
    ] {
        let fields = fields
            + "anthropic-version: 2023-06-01\r\nAccept-Encoding: gzip\r\nX-Forwarded-For: 10.0.0.1\r\nContent-Length: 0\r\n";
        let answer = way
            .ask(
                &format!("POST /model/{upstream}/v1//messages{query}"),
                &fields,
            )
            .await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(&format!("{expected}{stars}\n")), "{answer}");
        assert!(
            !answer.contains(TOKEN) && !answer.contains("x-forwarded"),
            "{answer}"
        );
        assert!(
            answer.contains("accept-encoding: identity")
                && answer.contains("anthropic-version: 2023-06-01"),
            "{answer}"
        );
        let line = answer
            .lines()
            .find(|line| line.starts_with("POST "))
            .unwrap();
        let kept_query = if query.is_empty() { "" } else { "?alt=sse" };
        assert_eq!(line, format!("POST /base/v1/messages{kept_query} HTTP/1.1"));
    }
}

#[tokio::test]
async fn an_upstream_may_want_another_field_or_no_credential() {
    let way = Way::new().await;
    let fields = format!("Authorization: Bearer {TOKEN}\r\n");
    let other = way.ask("GET /model/azure/show", &fields).await;
    assert!(
        other.contains(&format!("api-key: {}", "*".repeat(CREDENTIAL.len()))),
        "{other}"
    );
    let none = way.ask("GET /model/open/show", &fields).await;
    assert!(
        none.starts_with("HTTP/1.1 200")
            && !none.contains("api-key")
            && !none.contains("authorization"),
        "{none}"
    );
}

/// H7: cookies, account names and the repeated credential stay out; the rest comes through.
#[tokio::test]
async fn responses_are_freed_of_what_must_not_enter() {
    let way = Way::new().await;
    let answer = way
        .ask(
            "GET /model/anthropic/v1/models",
            &format!("x-api-key: {TOKEN}\r\n"),
        )
        .await
        .to_lowercase();
    assert!(answer.contains("x-kept: yes"), "{answer}");
    for gone in [
        "set-cookie",
        "x-hop",
        "keep-alive",
        "organization-id",
        "x-echo",
    ] {
        assert!(!answer.contains(gone), "{gone} in {answer}");
    }
}

#[tokio::test]
async fn errors_speak_the_language_of_the_api_and_name_the_remedy() {
    let way = Way::new().await;
    let good = format!("x-api-key: {TOKEN}\r\n");
    for (line, fields, status, parts) in [
        (
            "GET /model/anthropic/v1/models",
            "",
            "401",
            vec![r#""type":"authentication_error""#, "API key variable"],
        ),
        (
            "GET /model/openai/v1/models",
            "Authorization: Bearer wrong\r\n",
            "401",
            vec![r#"{"error":{"#, "work only while their phase runs"],
        ),
        (
            "GET /model/google/v1beta/models",
            "x-goog-api-key: wrong\r\n",
            "401",
            vec![r#""status":"UNAUTHENTICATED""#],
        ),
        (
            "GET /model/forbidden/v1/models",
            &good,
            "403",
            vec!["may not use this model upstream"],
        ),
        (
            "GET /model/unknown/v1/models",
            &good,
            "404",
            vec!["anthropic, azure, fake, forbidden"],
        ),
        (
            "GET /model/unknown/v1/models",
            "",
            "401",
            vec!["no phase token"],
        ),
        ("GET /model/", &good, "404", vec!["/model/<upstream>/"]),
        ("GET /other", &good, "404", vec!["/model/<upstream>/"]),
        ("TRACE /model/anthropic/v1", &good, "405", vec!["method"]),
        (
            "GET /model/anthropic/redirect",
            &good,
            "502",
            vec!["elsewhere.example", "base URL"],
        ),
        (
            "GET /model/anthropic/gzip",
            &good,
            "502",
            vec!["compressed"],
        ),
        (
            "GET /model/gone/v1",
            &good,
            "502",
            vec!["cannot be reached", "gone.test.com:9"],
        ),
        (
            "GET /model/private/v1",
            &good,
            "502",
            vec!["10.0.0.1, a private address"],
        ),
    ] {
        let answer = way.ask(line, fields).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{line}: {answer}"
        );
        assert!(answer.contains("application/json"), "{answer}");
        for part in parts {
            assert!(answer.contains(part), "{line}: {part} in {answer}");
        }
    }
}

#[tokio::test]
async fn no_path_leaves_the_upstreams_base() {
    let way = Way::new().await;
    for rest in [
        "/..",
        "/../admin",
        "/v1/../../admin",
        "/%2e%2e/admin",
        "/v1/..%2f..%2fadmin",
        "/%252e%252e/admin",
        "/..%5cadmin",
        "/..;x/admin",
    ] {
        let answer = way
            .ask(
                &format!("GET /model/anthropic{rest}"),
                &format!("x-api-key: {TOKEN}\r\n"),
            )
            .await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{rest}: {answer}");
    }
}

/// Case 34: the first event is in the sandbox while the upstream still thinks about the second.
#[tokio::test]
async fn case_34_events_stream_through_the_gateway() {
    let way = Way::new().await;
    // The first request pays for the TLS handshake; the second shows the gateway's own time.
    for limit_ms in [5_000, 900] {
        let mut stream = TcpStream::connect(way.inside).await.unwrap();
        let started = Instant::now();
        let request =
            format!("GET /model/anthropic/sse HTTP/1.1\r\nHost: x\r\nx-api-key: {TOKEN}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let first = read_until(&mut stream, "data: one\n\n").await;
        assert!(first.contains("text/event-stream"), "{first}");
        // The bound is 100 ms; the slack is for a machine with other work.
        assert!(
            started.elapsed() < Duration::from_millis(limit_ms),
            "{:?}",
            started.elapsed()
        );
        way.upstream.go_on.notify_one();
        read_until(&mut stream, "0\r\n\r\n").await;
    }
}

/// Case 34: uploads in chunks stream up while their echo streams down; ranges and lengths are kept.
#[tokio::test]
async fn case_34_uploads_ranges_and_lengths_pass_the_gateway() {
    let way = Way::new().await;
    let mut stream = TcpStream::connect(way.inside).await.unwrap();
    let head = format!(
        "POST /model/anthropic/upload HTTP/1.1\r\nHost: x\r\nx-api-key: {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"5\r\nfirst\r\n").await.unwrap();
    read_until(&mut stream, "first\r\n").await;
    // The credential itself, in two pieces: what an upstream repeats does not come back.
    let (one, two) = CREDENTIAL.split_at(9);
    stream
        .write_all(
            format!(
                "{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
                one.len(),
                two.len()
            )
            .as_bytes(),
        )
        .await
        .unwrap();
    let rest = read_until(&mut stream, "0\r\n\r\n").await;
    assert!(rest.contains("***") && !rest.contains("sk-real"), "{rest}");

    let fields = format!("x-api-key: {TOKEN}\r\nRange: bytes=2-4\r\n");
    let part = way
        .ask("GET /model/anthropic/range", &fields)
        .await
        .to_lowercase();
    assert!(
        part.starts_with("http/1.1 206")
            && part.contains("content-length: 3")
            && part.ends_with("234"),
        "{part}"
    );
}

/// A fake model on loopback over plain HTTP, which works only because the operator permits that very host.
#[tokio::test]
async fn plain_http_upstreams_need_the_operators_permission() {
    let way = Way::new().await;
    let answer = way
        .ask(
            "GET /model/fake/v1/models",
            &format!("x-api-key: {TOKEN}\r\n"),
        )
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("GET /v1/models"),
        "{answer}"
    );

    let names = zone();
    let upstream = ModelUpstream::new(
        "clear",
        "http://8.8.8.8/",
        HeaderForm::XApiKey,
        ApiStyle::OpenAi,
        CREDENTIAL.to_owned().into(),
    );
    let error = ModelGateway::new(ModelGatewayConfig {
        upstreams: vec![upstream.unwrap()],
        egress: egress(&names),
        tls: Tls::system().unwrap(),
        tokens: Arc::new(Tokens),
        limits: ModelLimits::default(),
    });
    let error = error.err().unwrap();
    assert!(
        matches!(
            error,
            ModelGatewayError::Upstream(ModelUpstreamError::Clear(_))
        ),
        "{error}"
    );
}

#[test]
fn a_malformed_upstream_is_refused_without_its_credential() {
    let make = |name: &str, base: &str, credential: &str| {
        ModelUpstream::new(
            name,
            base,
            HeaderForm::Bearer,
            ApiStyle::OpenAi,
            credential.to_owned().into(),
        )
    };
    for (name, base, credential) in [
        ("Bad Name", "https://x.com", "hush-hush"),
        ("a", "ftp://x.com", "hush-hush"),
        ("a", "https://u:hush@x.com", "hush-hush"),
        ("a", "https://x.com/?q", "hush-hush"),
        ("a", "not a url", "hush-hush"),
        ("a", "https://x.com", "hush-hush\n"),
        ("a", "https://x.com", ""),
    ] {
        let error = make(name, base, credential).unwrap_err().to_string();
        assert!(!error.contains("hush"), "{error}");
    }
    let good = make("a", "https://x.com/v1", "hush-hush").unwrap();
    assert!(!format!("{good:?}").contains("hush"));
}
