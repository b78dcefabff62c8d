//! OpenAI's Responses and chat completions.

use serde_json::{Value, json};

use crate::{
    answer::{Say, Script, list, tools},
    server::Reply,
};

pub(crate) fn responses(script: &Script, body: &Value, number: usize) -> Reply {
    let has_result = list(body, "input").any(|item| {
        let kind = item["type"].as_str().unwrap_or_default();
        kind.ends_with("_call_output")
    });
    let say = script.say(&tools(body.get("tools")), has_result);
    let item = item(&say, number);
    let usage = json!({"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
                       "input_tokens_details": {"cached_tokens": 0},
                       "output_tokens_details": {"reasoning_tokens": 0}});
    let done = json!({"id": format!("resp_fake_{number}"), "object": "response", "status": "completed",
                      "model": body.get("model"), "output": [item], "usage": usage});
    if body.get("stream") != Some(&Value::Bool(true)) {
        return Reply::Json(200, done);
    }
    let event = |kind: &'static str, mut data: Value| {
        data["type"] = kind.into();
        (Some(kind), data)
    };
    Reply::Events(vec![
        event(
            "response.created",
            json!({"response": {"id": format!("resp_fake_{number}")}}),
        ),
        event(
            "response.output_item.added",
            json!({"output_index": 0, "item": item}),
        ),
        event(
            "response.output_item.done",
            json!({"output_index": 0, "item": item}),
        ),
        event("response.completed", json!({"response": done})),
    ])
}

fn item(say: &Say, number: usize) -> Value {
    match say {
        Say::Text(text) => {
            let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
            json!({"type": "message", "id": format!("msg_fake_{number}"), "role": "assistant", "status": "completed",
                   "content": content})
        }
        Say::Call { tool, arguments } => {
            json!({"type": "function_call", "id": format!("fc_fake_{number}"), "call_id": format!("call_fake_{number}"), "name": tool,
                   "arguments": arguments.to_string(), "status": "completed"})
        }
    }
}

pub(crate) fn chat_completions(script: &Script, body: &Value, number: usize) -> Reply {
    let has_result = list(body, "messages").any(|message| message["role"] == "tool");
    let say = script.say(&tools(body.get("tools")), has_result);
    let (message, reason) = match &say {
        Say::Text(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Say::Call { tool, arguments } => {
            let function = json!({"name": tool, "arguments": arguments.to_string()});
            let call = json!({"index": 0, "id": format!("call_fake_{number}"), "type": "function", "function": function});
            (
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                "tool_calls",
            )
        }
    };
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    let model = body.get("model");
    if body.get("stream") != Some(&Value::Bool(true)) {
        let choice = json!({"index": 0, "message": message, "finish_reason": reason});
        return Reply::Json(
            200,
            json!({"id": format!("chat_fake_{number}"), "object": "chat.completion", "created": 1, "model": model,
                   "choices": [choice], "usage": usage}),
        );
    }
    let chunk = |delta: Value, reason: Value| {
        json!({"id": format!("chat_fake_{number}"), "object": "chat.completion.chunk", "created": 1, "model": model,
               "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    };
    let mut last = chunk(json!({}), reason.into());
    last["usage"] = usage;
    Reply::Events(vec![
        (None, chunk(message, Value::Null)),
        (None, last),
        (None, Value::from("[DONE]")),
    ])
}
