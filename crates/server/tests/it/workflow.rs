//! What a workflow names must be there before any work starts (R1).

use bulkhead_server::ModelUpstream;
use http::{Method, StatusCode};
use serde_json::json;

use crate::server::{Answer, Server};

async fn create(server: &Server, workflow: &str) -> Answer {
    let new = json!({"workflow": {"text": workflow}});
    server.call(Method::POST, "/api/v1/runs", &new).await
}

/// R1: a misspelt agent, toolchain or notifier is an error with its place and the nearest right name, and no run is made.
#[tokio::test]
async fn r1_misspelt_names_are_refused_with_their_place_and_the_nearest_name() {
    let server = Server::start_with(|config| config.toolchains = vec!["/opt/node".into()]).await;
    let cases = [
        (
            "name: x\nphases:\n  - name: a\n    agent: claud\n    prompt: p\n",
            "4:12",
            "`claude`",
        ),
        (
            "name: x\nphases:\n  - name: a\n    run: 'true'\n    toolchains: [/opt/nod]\n",
            "5:18",
            "`/opt/node`",
        ),
        (
            "name: x\nphases:\n  - name: a\n    run: 'true'\n    gate:\n      notify: [{command: tel}]\n",
            "6:26",
            "`tell`",
        ),
    ];
    for (workflow, place, nearest) in cases {
        let refused = create(&server, workflow).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        let problem = refused.json();
        assert_eq!(problem["code"], "invalid_workflow");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains(&format!("workflow:{place}: "))
                && detail.contains(&format!("did you mean {nearest}")),
            "{detail}"
        );
    }
    let runs = server.get("/api/v1/runs").await.json();
    assert_eq!(runs["items"], json!([]));
    server.shutdown().await;
}

/// R1: an agent whose model API the operator has not configured is refused before a sandbox is built for it.
#[tokio::test]
async fn r1_an_agent_without_its_model_is_refused_with_what_to_do() {
    let workflow = "name: x\nphases:\n  - name: a\n    agent: claude\n    prompt: p\n";
    let server = Server::start().await;
    let refused = create(&server, workflow).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let problem = refused.json();
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("\"anthropic\""),
        "{problem}"
    );
    assert!(
        problem["remedy"].as_str().unwrap().contains("`models`"),
        "{problem}"
    );
    server.shutdown().await;
    let model = ModelUpstream {
        base_url: "https://api.example.com".parse().unwrap(),
        header: "x-api-key".to_owned(),
        credential: None,
        allow_private: false,
    };
    let server = Server::start_with(|config| {
        config.models.insert("anthropic".to_owned(), model);
    })
    .await;
    assert_eq!(create(&server, workflow).await.status, StatusCode::CREATED);
    server.shutdown().await;
}
