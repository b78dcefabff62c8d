//! P4: the chat, models and other agents.

use bulkhead_test_isolates::platform::NOW_MS;
use bulkhead_wire::platform::{self, answer::Answer as Answered, call::Call as Asked};
use serde_json::{Value, json};

use super::Plugin;

#[tokio::test]
async fn p4_session_info_and_messages() {
    let plugin = Plugin::new();
    let info = plugin.call("session.info", json!([])).await;
    let expected = json!({"id": "session-1", "agentId": "agent-1", "title": "A chat", "channel": "web", "locale": "de-CH", "timeZone": "Europe/Zurich"});
    assert_eq!(info, expected);
    for text in ["one", "two", "three"] {
        plugin.call("session.post", json!([text])).await;
    }
    let all = plugin.call("session.messages", json!([])).await;
    let first = json!({"id": "message-1", "role": "assistant", "author": "the plugin", "text": "one", "createdAtMs": NOW_MS, "attachments": []});
    assert_eq!((&all["messages"][0], &all["more"]), (&first, &json!(false)));
    let some = plugin
        .call(
            "session.messages",
            json!([{"limit": 1, "before": "message-3"}]),
        )
        .await;
    assert_eq!(
        (&some["messages"][0]["text"], &some["more"]),
        (&json!("two"), &json!(true))
    );
    plugin
        .bad(
            "session.messages",
            json!([{"limit": 0}]),
            "`limit` is 0; expected 1 to 200",
        )
        .await;
    plugin
        .bad("session.messages", json!([{"limit": 201}]), "`limit`")
        .await;
    plugin
        .bad("session.messages", json!([{"before": ""}]), "`before`")
        .await;
    plugin
        .bad("session.messages", json!([{"limits": 1}]), "limits")
        .await;
    plugin
        .bad("session.info", json!([1]), "more arguments")
        .await;
}

#[tokio::test]
async fn p4_session_post_and_send_error() {
    let plugin = Plugin::new();
    let media = plugin
        .call(
            "media.upload",
            json!([{"name": "a.txt", "mediaType": "text/plain", "body": "x"}]),
        )
        .await;
    let posted = plugin
        .call(
            "session.post",
            json!([{"text": "", "attachments": [media["token"]]}]),
        )
        .await;
    let messages = plugin.call("session.messages", json!([])).await;
    let message = &messages["messages"][0];
    assert_eq!(message["id"], posted["id"]);
    let attachment = json!({"name": "a.txt", "mediaType": "text/plain", "sizeBytes": 1, "token": media["token"]});
    assert_eq!(message["attachments"], json!([attachment]));
    assert_eq!(
        plugin
            .call(
                "session.sendError",
                json!([{"message": "no", "detail": "more"}])
            )
            .await,
        Value::Null
    );
    assert_eq!(plugin.platform.errors(), ["no"]);
    plugin
        .bad("session.post", json!([""]), "`text` has 0 bytes")
        .await;
    plugin
        .bad(
            "session.post",
            json!(["x".repeat(65_537)]),
            "expected 1 to 65536",
        )
        .await;
    plugin
        .bad(
            "session.post",
            json!([{"text": "x", "attachments": vec!["t"; 11]}]),
            "`attachments` has 11 entries",
        )
        .await;
    plugin
        .bad(
            "session.post",
            json!([5]),
            "expected a text, or an object with `text`",
        )
        .await;
    plugin
        .bad("session.sendError", json!([{"detail": "x"}]), "message")
        .await;
    plugin
        .bad("session.sendError", json!(["x".repeat(2_049)]), "`message`")
        .await;
}

#[tokio::test]
async fn p4_session_todos() {
    let plugin = Plugin::new();
    let set = json!([[{"text": "a"}, {"id": "kept", "text": "b", "status": "in_progress"}, {"text": "c", "status": "completed"}]]);
    let todos = plugin.call("session.todos.set", set).await;
    assert_eq!(
        todos[0],
        json!({"id": "todo-1", "text": "a", "status": "pending"})
    );
    assert_eq!(
        (&todos[1]["id"], &todos[1]["status"], &todos[2]["status"]),
        (&json!("kept"), &json!("in_progress"), &json!("completed"))
    );
    assert_eq!(plugin.call("session.todos.list", json!([])).await, todos);
    assert_eq!(
        plugin.call("session.todos.set", json!([[]])).await,
        json!([])
    );
    plugin
        .bad(
            "session.todos.set",
            json!([[{"text": "a"}, {"text": "b", "status": "done"}]]),
            "todos[1].status",
        )
        .await;
    plugin
        .bad(
            "session.todos.set",
            json!([[{"text": ""}]]),
            "todos[0].text",
        )
        .await;
    plugin
        .bad(
            "session.todos.set",
            json!([vec![json!({"text": "a"}); 201]]),
            "201 entries",
        )
        .await;
    plugin.bad("session.todos.set", json!([{}]), "todos").await;
    plugin
        .bad("session.todos.list", json!([{}]), "more arguments")
        .await;
}

#[tokio::test]
async fn p4_session_timers() {
    let plugin = Plugin::new();
    let timer = plugin
        .call(
            "session.timers.set",
            json!([{"name": "a", "afterMs": 5_000, "everyMs": 60_000, "data": {"x": [1]}}]),
        )
        .await;
    assert_eq!(
        timer,
        json!({"name": "a", "atMs": NOW_MS + 5_000, "everyMs": 60_000, "data": {"x": [1]}})
    );
    let other = plugin
        .call("session.timers.set", json!([{"name": "b", "atMs": 12}]))
        .await;
    assert_eq!(other, json!({"name": "b", "atMs": 12}));
    assert_eq!(
        plugin.call("session.timers.list", json!([])).await,
        json!([timer, other])
    );
    assert_eq!(
        plugin.call("session.timers.cancel", json!(["a"])).await,
        true
    );
    assert_eq!(
        plugin.call("session.timers.cancel", json!(["a"])).await,
        false
    );
    plugin
        .bad(
            "session.timers.set",
            json!([{"name": "a"}]),
            "either `atMs` or `afterMs`",
        )
        .await;
    plugin
        .bad(
            "session.timers.set",
            json!([{"name": "a", "atMs": 1, "afterMs": 1_000}]),
            "either",
        )
        .await;
    plugin
        .bad(
            "session.timers.set",
            json!([{"name": "a", "afterMs": 999}]),
            "`afterMs` is 999",
        )
        .await;
    plugin
        .bad(
            "session.timers.set",
            json!([{"name": "a", "atMs": 1, "everyMs": 59_999}]),
            "`everyMs`",
        )
        .await;
    plugin
        .bad(
            "session.timers.set",
            json!([{"name": "", "atMs": 1}]),
            "`name`",
        )
        .await;
    plugin
        .bad(
            "session.timers.set",
            json!([{"name": "a", "atMs": 1, "data": "x".repeat(16_400)}]),
            "`data`",
        )
        .await;
    plugin
        .bad(
            "session.timers.set",
            json!([{"name": "a", "atMs": 1.5}]),
            "atMs",
        )
        .await;
}

#[tokio::test]
async fn p4_llm_complete_of_both_kinds() {
    for path in ["session.llm.complete", "llm.complete"] {
        let plugin = Plugin::new();
        let answer = plugin.call(path, json!(["hello"])).await;
        let expected = json!({"text": "hello", "model": "model-1", "stopped": "end", "inputTokens": 5, "outputTokens": 7});
        assert_eq!(answer, expected);
        let full = json!([{
            "system": "s", "messages": [{"role": "user", "text": "a"}, {"role": "assistant", "text": "b"}, {"role": "user", "text": "c"}],
            "model": "m", "maxTokens": 9, "temperature": 0.5, "stop": ["x"], "schema": {"type": "object"},
        }]);
        let answer = plugin.call(path, full).await;
        assert_eq!(
            (&answer["data"], &answer["model"]),
            (&json!({"said": "c"}), &json!("m"))
        );
        let (Some(Asked::LlmComplete(asked)) | Some(Asked::SessionLlmComplete(asked))) =
            plugin.platform.last()
        else {
            panic!("something else was asked");
        };
        assert_eq!(
            (
                asked.output_tokens_max,
                asked.temperature,
                asked.messages.len()
            ),
            (9, Some(0.5), 3)
        );
        let user = |text: &str| json!([{"role": "user", "text": text}]);
        for (arguments, part) in [
            (json!([{}]), "either `prompt` or `messages`"),
            (json!([{"prompt": "a", "messages": user("b")}]), "either"),
            (json!([{"messages": []}]), "0 entries"),
            (
                json!([{"messages": [{"role": "assistant", "text": "a"}]}]),
                "the last of `messages`",
            ),
            (
                json!([{"messages": [{"role": "system", "text": "a"}]}]),
                "messages[0].role",
            ),
            (json!([{"messages": user("")}]), "no text"),
            (
                json!([{"messages": user(&"x".repeat((1 << 20) + 1))}]),
                "1048577 bytes",
            ),
            (json!([{"prompt": "a", "maxTokens": 32_001}]), "`maxTokens`"),
            (
                json!([{"prompt": "a", "temperature": 2.1}]),
                "`temperature`",
            ),
            (json!([{"prompt": "a", "stop": vec!["x"; 9]}]), "`stop`"),
            (json!([{"prompt": "a", "schema": []}]), "schema"),
            (json!([{"prompt": "a", "tools": []}]), "tools"),
            (
                json!([{"prompt": "a", "system": "x".repeat((256 << 10) + 1)}]),
                "`system`",
            ),
        ] {
            plugin.bad(path, arguments, part).await;
        }
    }
}

#[tokio::test]
async fn p4_an_answer_that_is_no_json_is_no_answer_to_a_schema() {
    let plugin = Plugin::new();
    let completion = platform::Completion {
        text: "not json".into(),
        ..Default::default()
    };
    plugin
        .platform
        .instead(70, Answered::LlmComplete(completion));
    let (code, message) = plugin
        .refused("llm.complete", json!([{"prompt": "a", "schema": {}}]))
        .await;
    assert_eq!(code, "failed", "{message}");
}

#[tokio::test]
async fn p4_agents_and_models() {
    let plugin = Plugin::new();
    let agents = plugin.call("agents.list", json!([])).await;
    assert_eq!(
        agents,
        json!([{"id": "agent-1", "name": "The agent-1", "description": "It helps."}, {"id": "agent-2", "name": "The agent-2"}])
    );
    let answer = plugin
        .call(
            "agents.ask",
            json!(["agent-2", "why?", {"timeoutMs": 2_000}]),
        )
        .await;
    assert_eq!(
        answer,
        json!({"text": "You asked: why?", "sessionId": "session-of-agent"})
    );
    assert_eq!(
        plugin.call("agents.send", json!(["agent-1", "hi"])).await,
        json!({"id": "message-1"})
    );
    assert_eq!(
        plugin
            .refused("agents.ask", json!(["agent-9", "why?"]))
            .await
            .0,
        "not_found"
    );
    plugin
        .bad("agents.ask", json!(["agent-1"]), "`text` is missing")
        .await;
    plugin
        .bad(
            "agents.ask",
            json!(["agent-1", "x", {"timeoutMs": 999}]),
            "`timeoutMs`",
        )
        .await;
    plugin.bad("agents.ask", json!(["", "x"]), "`id`").await;
    plugin.bad("agents.send", json!(["a", ""]), "`text`").await;
    let models = plugin.call("models.list", json!([])).await;
    let expected = json!([{"id": "model-1", "name": "Model One", "provider": "fake", "contextTokens": 200_000, "readsImages": true, "callsTools": false, "isDefault": true}]);
    assert_eq!(models, expected);
}
