//! Gemini's `generateContent` and `streamGenerateContent`.

use serde_json::{Value, json};

use crate::{
    answer::{Say, Script, list, tool},
    server::Reply,
};

pub(crate) fn generate(script: &Script, body: &Value, number: usize, stream: bool) -> Reply {
    let has_result = list(body, "contents")
        .any(|content| list(content, "parts").any(|part| part.get("functionResponse").is_some()));
    let declared = list(body, "tools").flat_map(|tools| list(tools, "functionDeclarations"));
    let tools: Vec<_> = declared.filter_map(tool).collect();
    let part = match script.say(&tools, has_result) {
        Say::Text(text) => json!({"text": text}),
        Say::Call { tool, arguments } => {
            json!({"functionCall": {"id": format!("call_fake_{number}"), "name": tool, "args": arguments}})
        }
    };
    let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15});
    let candidate = json!({"content": {"role": "model", "parts": [part]}, "finishReason": "STOP",
                           "index": 0});
    let answer = json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"});
    match stream {
        true => Reply::Events(vec![(None, answer)]),
        false => Reply::Json(200, answer),
    }
}
