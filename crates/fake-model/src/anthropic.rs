//! Anthropic's Messages.

use serde_json::{Value, json};

use crate::{
    answer::{Say, Script, list, tools},
    server::Reply,
};

pub(crate) fn messages(script: &Script, body: &Value, number: usize) -> Reply {
    let has_result = list(body, "messages")
        .any(|message| list(message, "content").any(|block| block["type"] == "tool_result"));
    let say = script.say(&tools(body.get("tools")), has_result);
    let model = body.get("model").cloned().unwrap_or_default();
    match body.get("stream") == Some(&Value::Bool(true)) {
        true => Reply::Events(events(&say, &model, number)),
        false => Reply::Json(
            200,
            message(&model, json!([block(&say, number)]), reason(&say), number),
        ),
    }
}

fn message(model: &Value, content: Value, stop_reason: Value, number: usize) -> Value {
    json!({"id": format!("msg_fake_{number}"), "type": "message", "role": "assistant", "model": model,
           "content": content, "stop_reason": stop_reason, "stop_sequence": null,
           "usage": {"input_tokens": 10, "output_tokens": 5}})
}

fn block(say: &Say, number: usize) -> Value {
    match say {
        Say::Text(text) => json!({"type": "text", "text": text}),
        Say::Call { tool, arguments } => {
            json!({"type": "tool_use", "id": format!("toolu_fake_{number}"), "name": tool, "input": arguments})
        }
    }
}

fn reason(say: &Say) -> Value {
    Value::from(match say {
        Say::Text(_) => "end_turn",
        Say::Call { .. } => "tool_use",
    })
}

fn events(say: &Say, model: &Value, number: usize) -> Vec<(Option<&'static str>, Value)> {
    let (start, delta) = match say {
        Say::Text(text) => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": text}),
        ),
        Say::Call { tool, arguments } => (
            json!({"type": "tool_use", "id": format!("toolu_fake_{number}"), "name": tool, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": arguments.to_string()}),
        ),
    };
    let event = |kind: &'static str, mut data: Value| {
        data["type"] = kind.into();
        (Some(kind), data)
    };
    vec![
        event(
            "message_start",
            json!({"message": message(model, json!([]), Value::Null, number)}),
        ),
        event(
            "content_block_start",
            json!({"index": 0, "content_block": start}),
        ),
        event("content_block_delta", json!({"index": 0, "delta": delta})),
        event("content_block_stop", json!({"index": 0})),
        event(
            "message_delta",
            json!({"delta": {"stop_reason": reason(say), "stop_sequence": null},
                   "usage": {"output_tokens": 5}}),
        ),
        event("message_stop", json!({})),
    ]
}
