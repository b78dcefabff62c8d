//! Callers, scopes, problems, and what a phase's credential cannot do.

use http::{Method, StatusCode};
use http_body_util::Full;
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::server::Server;

#[tokio::test]
async fn r18_health_is_for_anyone_and_the_api_for_callers_with_a_token() {
    let server = Server::start().await;
    for path in ["/healthz", "/readyz"] {
        let url = format!("http://{}{path}", server.address);
        let request = http::Request::get(url).body(Full::default()).unwrap();
        assert_eq!(server.send(request).await.status, StatusCode::OK, "{path}");
    }
    let url = format!("http://{}/api/v1/runs", server.address);
    let request = http::Request::get(url).body(Full::default()).unwrap();
    let refused = server.send(request).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers["content-type"], "application/problem+json");
    assert_eq!(refused.json()["code"], "unauthenticated");
    assert!(refused.json()["remedy"].is_string());
    assert_eq!(
        refused.json()["request_id"],
        refused.headers["x-request-id"].to_str().unwrap()
    );
    assert_eq!(server.get("/api/v1/runs").await.status, StatusCode::OK);
    server.shutdown().await;
}

/// The first token is stored 0600 and made once.
#[tokio::test]
async fn r18_the_first_token_is_made_once_and_private() {
    let server = Server::start().await;
    let path = server.plane.first_token_path();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), server.token);
    assert!(server.plane.first_token().await.unwrap().is_none());
    // The file can go once the token is known; it is not made again.
    assert_eq!(server.get("/api/v1/tokens").await.status, StatusCode::OK);
    std::fs::remove_file(&path).unwrap();
    assert!(server.plane.first_token().await.unwrap().is_none());
    server.shutdown().await;
}

#[tokio::test]
async fn r18_a_token_does_what_its_scopes_say_until_it_is_revoked() {
    let mut server = Server::start().await;
    let new = json!({"name": "reader", "scopes": ["read"]});
    let made = server.call(Method::POST, "/api/v1/tokens", &new).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let admin = std::mem::replace(
        &mut server.token,
        made.json()["token"].as_str().unwrap().to_owned(),
    );
    assert_eq!(server.get("/api/v1/runs").await.status, StatusCode::OK);
    let refused = server
        .call(Method::POST, "/api/v1/stop-all", &json!({}))
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let refused = server.call(Method::POST, "/api/v1/runs", &json!({})).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let reader = std::mem::replace(&mut server.token, admin);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let listed = server.get("/api/v1/tokens").await;
    assert!(
        !String::from_utf8_lossy(&listed.body).contains(&reader),
        "a token is shown once"
    );
    let revoked = server
        .call(Method::DELETE, &format!("/api/v1/tokens/{id}"), &json!({}))
        .await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT);
    server.token = reader;
    assert_eq!(
        server.get("/api/v1/runs").await.status,
        StatusCode::UNAUTHORIZED
    );
    server.shutdown().await;
}

/// Case 62: a phase's own credential opens nothing of the API, least of all a gate.
#[tokio::test]
async fn case_62_a_phases_token_cannot_answer_a_gate() {
    let mut server = Server::start().await;
    let run = server.run().await;
    let path = format!("/api/v1/runs/{run}");
    server
        .until(&path, |run| run["phases"][0]["status"] == "running")
        .await;
    let token = loop {
        let handed = server.executor.handed.lock().unwrap().pop();
        if let Some(secrets) = handed {
            break secrets.token.expose_secret().to_owned();
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let admin = std::mem::replace(&mut server.token, token);
    let gate = uuid::Uuid::nil();
    let answer = json!({"decision": "approve", "binding":
        {"commit": null, "diff": "0".repeat(64), "next": "0".repeat(64), "policy": "0".repeat(64)}});
    let decide = format!("{path}/gates/{gate}/decision");
    let refused = server.call(Method::POST, &decide, &answer).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert!(
        refused.json()["detail"]
            .as_str()
            .unwrap()
            .contains("phase's token")
    );
    assert_eq!(server.get(&path).await.status, StatusCode::UNAUTHORIZED);
    server.token = admin;
    server.shutdown().await;
}

#[tokio::test]
async fn r15_runs_are_listed_paused_resumed_cancelled_and_stopped() {
    let server = Server::start().await;
    let first = server.run().await;
    let second = server.run().await;
    let page = server.get("/api/v1/runs?limit=1").await.json();
    assert_eq!(page["items"][0]["id"], second.as_str());
    let next = page["next"].as_str().unwrap();
    let page = server
        .get(&format!("/api/v1/runs?limit=1&cursor={next}"))
        .await
        .json();
    assert_eq!(page["items"][0]["id"], first.as_str());

    let path = format!("/api/v1/runs/{first}");
    server
        .until(&path, |run| run["phases"][0]["status"] == "running")
        .await;
    let paused = server
        .call(
            Method::POST,
            &format!("{path}/pause"),
            &json!({"stop": true}),
        )
        .await;
    assert_eq!(paused.json()["status"], "paused");
    let resumed = server
        .call(Method::POST, &format!("{path}/resume"), &json!({}))
        .await;
    assert_eq!(resumed.json()["status"], "running");
    server
        .until(&path, |run| run["phases"][0]["attempt"] == 2)
        .await;
    server
        .call(Method::POST, &format!("{path}/cancel"), &json!({}))
        .await;
    let ended = server
        .until(&path, |run| run["status"] == "cancelled")
        .await;
    assert_eq!(ended["reason"], "cancelled by admin");
    let again = server
        .call(Method::POST, &format!("{path}/resume"), &json!({}))
        .await;
    assert_eq!(again.status, StatusCode::CONFLICT);

    let stopped = server
        .call(Method::POST, "/api/v1/stop-all", &json!({}))
        .await;
    assert_eq!(stopped.json()["runs"], json!([second]));
    let path = format!("/api/v1/runs/{second}");
    server
        .until(&path, |run| run["status"] == "cancelled")
        .await;
    server.shutdown().await;
}

#[tokio::test]
async fn problems_say_what_is_wrong_and_where() {
    let server = Server::start().await;
    let broken = json!({"workflow": {"text": "name: X\nphases:\n  - nmae: a\n    run: 'true'\n"}});
    let refused = server.call(Method::POST, "/api/v1/runs", &broken).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(refused.json()["code"], "invalid_workflow");
    assert!(refused.json()["findings"].to_string().contains("nmae"));
    let unknown = server
        .call(Method::POST, "/api/v1/runs", &json!({"bogus": 1}))
        .await;
    assert_eq!(unknown.status, StatusCode::UNPROCESSABLE_ENTITY);
    let missing = server
        .get(&format!("/api/v1/runs/{}", uuid::Uuid::nil()))
        .await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    let large = "x".repeat(3 << 20);
    let refused = server
        .call(Method::POST, "/api/v1/runs", &json!({"repo": large}))
        .await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    server.shutdown().await;
}

/// A page of another origin that points its own name at this address is refused.
#[tokio::test]
async fn r18_another_host_name_is_refused() {
    let server = Server::start().await;
    for (host, status) in [
        ("evil.example", StatusCode::FORBIDDEN),
        ("localhost:7070", StatusCode::OK),
        ("127.0.0.1:7070", StatusCode::OK),
    ] {
        let request = server
            .request(Method::GET, "/api/v1/runs")
            .header("host", host);
        let answer = server.send(request.body(Full::default()).unwrap()).await;
        assert_eq!(answer.status, status, "{host}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
    }
    server.shutdown().await;
}

/// R17: secrets are set and listed, never read back.
#[tokio::test]
async fn r17_secrets_are_never_read_back() {
    let server = Server::start().await;
    let value = "correct-horse-battery-staple-42";
    let set = server
        .call(
            Method::PUT,
            "/api/v1/secrets/DEPLOY_KEY",
            &json!({"value": value}),
        )
        .await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.json());
    let weak = server
        .call(
            Method::PUT,
            "/api/v1/secrets/WEAK",
            &json!({"value": "short"}),
        )
        .await;
    assert_eq!(weak.status, StatusCode::UNPROCESSABLE_ENTITY);
    let listed = server.get("/api/v1/secrets").await;
    assert_eq!(listed.json()[0]["name"], "DEPLOY_KEY");
    assert!(!String::from_utf8_lossy(&listed.body).contains(value));
    let gone = server
        .call(Method::DELETE, "/api/v1/secrets/DEPLOY_KEY", &json!({}))
        .await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    server.shutdown().await;
}

/// Live streams resume by sequence, end with the run, and say bye when the server goes.
#[tokio::test]
async fn r15_a_live_stream_resumes_and_says_bye() {
    let server = Server::start().await;
    let run = server.run().await;
    let path = format!("/api/v1/runs/{run}");
    let running = server
        .until(&path, |run| run["phases"][0]["status"] == "running")
        .await;
    server
        .call(Method::POST, &format!("{path}/cancel"), &json!({}))
        .await;
    let ended = server
        .until(&path, |run| run["status"] == "cancelled")
        .await;
    let whole = server.get(&format!("{path}/watch")).await;
    let text = String::from_utf8(whole.body.to_vec()).unwrap();
    assert!(
        text.contains("event: run") && text.contains("event: end"),
        "{text}"
    );
    assert!(text.contains(&format!("id: {}", ended["version"])));
    // What was seen does not come again.
    let request = server
        .request(Method::GET, &format!("{path}/watch"))
        .header("last-event-id", ended["version"].to_string());
    let rest = server.send(request.body(Full::default()).unwrap()).await;
    let text = String::from_utf8(rest.body.to_vec()).unwrap();
    assert!(
        !text.contains("event: run") && text.contains("event: end"),
        "{text}"
    );
    assert!(running["version"].as_u64() < ended["version"].as_u64());

    let other = server.run().await;
    let watch = format!("/api/v1/runs/{other}/watch");
    server
        .until(&format!("/api/v1/runs/{other}"), |run| {
            run["status"] == "running"
        })
        .await;
    let stop = server.stop.clone();
    let (answer, ()) = tokio::join!(server.get(&watch), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        stop.cancel();
    });
    assert!(String::from_utf8_lossy(&answer.body).contains("event: bye"));
    server.shutdown().await;
}

/// R15, case 62: a waiting gate is told to the operator's command; an answer to what was not shown is void; the right
/// one counts once.
#[tokio::test]
async fn case_62_a_waiting_gate_is_told_and_takes_only_what_was_shown() {
    let server = Server::start().await;
    let workflow = "name: Fails\nphases:\n  - name: fail\n    run: exit 1\n    gate:\n      notify:\n        - command: tell\n";
    let made = server
        .call(
            Method::POST,
            "/api/v1/runs",
            &json!({"workflow": {"text": workflow}}),
        )
        .await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.json());
    let path = format!("/api/v1/runs/{}", made.json()["id"].as_str().unwrap());
    let waiting = server.until(&path, |run| run["status"] == "waiting").await;
    assert_eq!(waiting["gate"]["why"], "parked");
    let gate = format!("{path}/gates/{}", waiting["gate"]["id"].as_str().unwrap());
    let notice = loop {
        let told = std::fs::read(server.dir.path().join("told")).unwrap_or_default();
        if let Ok(notice) = serde_json::from_slice::<serde_json::Value>(&told) {
            break notice;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(notice["gate"], waiting["gate"]["id"]);

    let binding = server.get(&gate).await.json()["binding"].clone();
    let mut other = binding.clone();
    other["policy"] = json!("0".repeat(64));
    let decide = format!("{gate}/decision");
    let answer = json!({"decision": "reject", "binding": other});
    let void = server.call(Method::POST, &decide, &answer).await;
    assert_eq!(void.json()["code"], "decision_void");
    for _ in 0..2 {
        let answer = json!({"decision": "reject", "binding": binding});
        let decided = server.call(Method::POST, &decide, &answer).await;
        assert_eq!(decided.json()["status"], "rejected", "{}", decided.json());
    }
    let answer = json!({"decision": "approve", "binding": binding});
    let late = server.call(Method::POST, &decide, &answer).await;
    assert_eq!(late.status, StatusCode::CONFLICT);
    server.shutdown().await;
}
