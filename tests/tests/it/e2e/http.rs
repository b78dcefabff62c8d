//! A whole run as a caller of the HTTP API sees it: followed, looked through, and landed.

use std::net::SocketAddr;

use bulkhead_server::RunStatus;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::machine::Machine;
use crate::repo;

const WORKFLOW: &str = "name: Sample\nphases:\n  - name: plan\n    run: echo one; sleep 0.3; echo two; mkdir .githooks; echo x > .githooks/pre-commit; echo plan > plan.txt; printf 'a\\0b' > out.bin\n    gate: none\n    artifacts:\n      out: {bytes: out.bin}\n  - name: build\n    run: rm out.bin; echo built > built.txt\n    gate: none\n";

struct Api {
    address: SocketAddr,
    token: String,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

impl Api {
    async fn of(machine: &Machine) -> Self {
        let token = machine.plane.first_token().await.unwrap().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let (plane, stopped) = (machine.plane.clone(), stop.clone());
        serving.spawn(async move { plane.serve(listener, stopped).await.unwrap() });
        Self {
            address,
            token: token.expose_secret().to_owned(),
            stop,
            serving,
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        last_event: Option<&str>,
        body: Value,
    ) -> (StatusCode, Vec<u8>) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}/api/v1{path}", self.address))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json");
        if let Some(id) = last_event {
            request = request.header("last-event-id", id);
        }
        let body = Full::new(bytes::Bytes::from(body.to_string()));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request.body(body).unwrap()).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap();
        (status, body.to_bytes().to_vec())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// Every event of a stream that ends: its id and its data.
    async fn follow(&self, path: &str, last_event: Option<&str>) -> Vec<(String, Value)> {
        let (status, body) = self.call(Method::GET, path, last_event, Value::Null).await;
        assert_eq!(status, StatusCode::OK);
        let text = String::from_utf8(body).unwrap();
        assert!(text.contains("event: end\n"), "{text}");
        let field = |event: &str, name: &str| {
            let found = event.lines().find_map(|line| line.strip_prefix(name));
            found.map(str::to_owned)
        };
        let events = text.split("\n\n");
        let events = events.filter_map(|event| {
            let id = field(event, "id: ")?;
            let data = serde_json::from_str(&field(event, "data: ")?).unwrap();
            Some((id, data))
        });
        events.collect()
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.serving.join_next().await;
    }
}

/// A stream from its beginning, and again from its middle: what was seen does not come again, and nothing is left out.
async fn resumes(api: &Api, path: &str) -> Vec<Value> {
    let whole = api.follow(path, None).await;
    assert!(whole.len() > 2, "{path}: {whole:?}");
    let ids: Vec<String> = whole.iter().map(|(id, _)| id.clone()).collect();
    let expected: Vec<String> = (1..=whole.len()).map(|id| id.to_string()).collect();
    assert_eq!(ids, expected, "{path}");
    let rest = api.follow(path, Some("2")).await;
    assert_eq!(rest, whole[2..], "{path}");
    whole.into_iter().map(|(_, data)| data).collect()
}

/// R15, R16: the log and the events of a phase resume by sequence, the diff tells apart what runs later, artifacts come
/// byte for byte, and the result lands on its base.
#[tokio::test]
async fn r15_a_run_is_followed_looked_through_and_landed_over_http() {
    let machine = Machine::start(WORKFLOW).await;
    let api = Api::of(&machine).await;
    let run = machine.run().await;
    machine.until_log(&run, "plan", "one").await;
    // Followed from within the phase until it ends.
    let path = format!("/runs/{run}/phases/plan");
    let lines = resumes(&api, &format!("{path}/log/live")).await;
    let text: String = lines
        .iter()
        .filter_map(|line| line["text"].as_str())
        .collect();
    assert!(text.contains("one\n") && text.contains("two\n"), "{text}");
    let events = resumes(&api, &format!("{path}/events/live")).await;
    let listed = api.get(&format!("{path}/events?after=2")).await;
    assert_eq!(listed.as_array().unwrap()[..], events[2..]);

    let ended = machine
        .until(&run, |run| run.status.is_final() || run.gate.is_some())
        .await;
    assert_eq!(ended.status, RunStatus::Completed, "{ended:#?}");
    let whole = api.get(&format!("/runs/{run}/diff")).await;
    let paths = |diff: &Value| {
        let files = diff["files"].as_array().unwrap().iter();
        let paths = files.map(|file| file["path"].as_str().unwrap().to_owned());
        paths.collect::<Vec<_>>()
    };
    assert_eq!(
        paths(&whole),
        [".githooks/pre-commit", "built.txt", "plan.txt"]
    );
    assert!(whole["patch"].as_str().unwrap().contains("+built"));
    assert!(
        whole["runs_later"]
            .to_string()
            .contains(".githooks/pre-commit"),
        "{whole}"
    );
    let part = api.get(&format!("/runs/{run}/diff?phase=build")).await;
    assert_eq!(paths(&part), ["built.txt", "out.bin"]);

    let (status, bytes) = api
        .call(
            Method::GET,
            &format!("/runs/{run}/artifacts/bytes"),
            None,
            Value::Null,
        )
        .await;
    assert_eq!((status, bytes.as_slice()), (StatusCode::OK, &b"a\0b"[..]));

    let repository = machine.repository();
    repo::git(&repository, &["checkout", "--quiet", "--detach"]);
    let (status, landed) = api
        .call(
            Method::POST,
            &format!("/runs/{run}/land"),
            None,
            json!({"mode": "merge"}),
        )
        .await;
    let landed: Value = serde_json::from_slice(&landed).unwrap();
    assert_eq!(status, StatusCode::OK, "{landed}");
    assert_eq!(landed["outcome"], "landed", "{landed}");
    let tip = repo::git(&repository, &["rev-parse", "main"]);
    assert_eq!(landed["commit"], tip.as_str());
    assert_eq!(repo::git(&repository, &["show", "main:built.txt"]), "built");
    api.end().await;
    machine.stop().await;
}
