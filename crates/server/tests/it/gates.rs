//! Gates in time: they expire by the server's clock, and word of them goes out without holding anything up.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bulkhead_server::{Clock, ManualClock};
use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);

fn clock() -> ManualClock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    ManualClock::starting_at(i64::try_from(since.as_millis()).unwrap())
}

/// R2, R15: silence never approves. A gate whose time is over rejects its run, and not before.
#[tokio::test]
async fn r2_a_gate_expires_by_the_servers_clock_and_not_before() {
    let clock = clock();
    let server = Server::start_with(|config| config.clock = Clock::Manual(clock.clone())).await;
    let workflow =
        "name: Waits\nphases:\n  - name: done\n    run: exit 0\n    gate:\n      expires: 1h\n";
    let run = server.run_of(workflow).await;
    let path = format!("/api/v1/runs/{run}");
    let waiting = server.until(&path, |run| run["status"] == "waiting").await;
    let gate = &waiting["gate"];
    assert_eq!(gate["why"], "review");
    let time = gate["expires_at_ms"].as_i64().unwrap() - gate["opened_at_ms"].as_i64().unwrap();
    assert_eq!(time, 3_600_000);
    clock.advance(Duration::from_secs(3540));
    // Longer than the timer's period.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(server.get(&path).await.json()["status"], "waiting");
    clock.advance(Duration::from_secs(120));
    let ended = server.until(&path, |run| run["status"] == "rejected").await;
    assert!(
        ended["reason"]
            .as_str()
            .unwrap()
            .contains("nobody answered in time"),
        "{ended}"
    );
    server.shutdown().await;
}

/// A listener for webhooks on loopback.
struct Hook(TcpListener);

impl Hook {
    async fn open() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn workflow(&self) -> String {
        let address = self.0.local_addr().unwrap();
        format!(
            "name: Fails\nphases:\n  - name: fail\n    run: exit 1\n    gate:\n      notify:\n        - webhook: http://{address}/hook\n"
        )
    }

    /// The next request's body, and the connection to answer on.
    async fn told(&self) -> (Value, TcpStream) {
        let accepted = tokio::time::timeout(PATIENCE, self.0.accept()).await;
        let (mut stream, _) = accepted.expect("nobody told the webhook").unwrap();
        let mut request = Vec::new();
        loop {
            let read = stream.read_buf(&mut request).await.unwrap();
            assert!(read > 0, "a request was cut off");
            let text = String::from_utf8_lossy(&request);
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
            if let Some(Ok(body)) = body.map(serde_json::from_str) {
                assert!(text.starts_with("POST /hook HTTP/1.1\r\n"), "{text}");
                return (body, stream);
            }
        }
    }
}

async fn answer(stream: &mut TcpStream, status: &str) {
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
}

/// R15: a webhook that fails is told again, until it has heard of the gate.
#[tokio::test]
async fn r15_a_webhook_that_fails_is_told_again() {
    let server = Server::start_with(|config| config.notify.allow_private_webhooks = true).await;
    let hook = Hook::open().await;
    let run = server.run_of(&hook.workflow()).await;
    let (first, mut stream) = hook.told().await;
    answer(&mut stream, "500 Internal Server Error").await;
    let (second, mut stream) = hook.told().await;
    answer(&mut stream, "204 No Content").await;
    assert_eq!(first, second);
    assert_eq!(first["event"], "gate_waiting");
    assert_eq!(first["run"], run.as_str());
    assert_eq!(first["why"], "parked");
    let view = server.get(&format!("/api/v1/runs/{run}")).await.json();
    assert_eq!(first["gate"], view["gate"]["id"]);
    server.shutdown().await;
}

/// R15: a webhook that never answers holds nothing up.
#[tokio::test]
async fn r15_a_silent_webhook_does_not_block_the_run() {
    let server = Server::start_with(|config| config.notify.allow_private_webhooks = true).await;
    let hook = Hook::open().await;
    let run = server.run_of(&hook.workflow()).await;
    let (notice, _silent) = hook.told().await;
    let path = format!("/api/v1/runs/{run}");
    let gate = format!("{path}/gates/{}", notice["gate"].as_str().unwrap());
    for attempt in 2..4 {
        let view = server.until(&path, |run| run["status"] == "waiting").await;
        let gate = format!("{path}/gates/{}", view["gate"]["id"].as_str().unwrap());
        let binding = server.get(&gate).await.json()["binding"].clone();
        let approve = json!({"decision": "approve", "binding": binding});
        let decided = server
            .call(Method::POST, &format!("{gate}/decision"), &approve)
            .await;
        assert!(decided.status.is_success(), "{}", decided.json());
        server
            .until(&path, |run| {
                run["status"] == "waiting" && run["phases"][0]["attempt"] == attempt
            })
            .await;
    }
    assert!(server.get(&gate).await.status.is_client_error());
    server.shutdown().await;
}

/// D10: without the operator's permission a webhook on a private address is not even connected to.
#[tokio::test]
async fn d10_a_webhook_on_a_private_address_needs_the_operators_permission() {
    let server = Server::start().await;
    let hook = Hook::open().await;
    let run = server.run_of(&hook.workflow()).await;
    server
        .until(&format!("/api/v1/runs/{run}"), |run| {
            run["status"] == "waiting"
        })
        .await;
    // Longer than the pause before it is tried again.
    let reached = tokio::time::timeout(Duration::from_millis(1500), hook.0.accept()).await;
    assert!(reached.is_err(), "a private address was reached");
    server.shutdown().await;
}
