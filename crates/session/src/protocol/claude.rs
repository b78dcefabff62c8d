//! Claude Code's `--output-format stream-json`: one JSON object a line, ended by a `result`.

use bulkhead_model::{AgentEvent, Usage};
use serde_json::Value;

use super::{
    AgentProtocol, ProtocolError, Step,
    json::{array, number, object, readable, string},
};

/// Reads the stream and counts turns: one for each answer of the model.
#[derive(Debug, Default)]
pub struct Claude {
    turns: u32,
    last_message: Option<String>,
    usage: Usage,
}

impl AgentProtocol for Claude {
    fn line(&mut self, line: &str) -> Result<Step, ProtocolError> {
        let events = match object(line) {
            Some(value) => self.object(&value, line),
            None if line.trim().is_empty() => vec![],
            None => vec![other(line)],
        };
        Ok(Step {
            events,
            write: vec![],
        })
    }
}

fn other(line: &str) -> AgentEvent {
    AgentEvent::Other {
        line: line.to_owned(),
    }
}

impl Claude {
    fn object(&mut self, value: &Value, line: &str) -> Vec<AgentEvent> {
        match value.get("type").and_then(Value::as_str) {
            Some("system") if value.get("subtype").and_then(Value::as_str) == Some("init") => {
                vec![AgentEvent::Started {
                    agent: Some("claude".to_owned()),
                    model: string(value, "model"),
                    session: string(value, "session_id"),
                }]
            }
            Some("assistant") => self.assistant(value),
            Some("user") => tool_results(value),
            Some("result") => self.result(value),
            _ => vec![other(line)],
        }
    }

    /// One model answer can arrive as several lines with the same message id, one for each block.
    fn assistant(&mut self, value: &Value) -> Vec<AgentEvent> {
        let Some(message) = value.get("message") else {
            return vec![];
        };
        let mut events: Vec<_> = array(message, "content").iter().filter_map(block).collect();
        let id = string(message, "id");
        if id.is_none() || id != self.last_message {
            self.last_message = id;
            self.turns += 1;
            self.usage.turns = self.turns;
            if let Some(used) = message.get("usage") {
                self.usage.input_tokens += input_tokens(used);
                self.usage.output_tokens += number(used, "output_tokens");
            }
            events.push(AgentEvent::Usage { total: self.usage });
        }
        events
    }

    fn result(&mut self, value: &Value) -> Vec<AgentEvent> {
        if let Some(used) = value.get("usage") {
            self.usage.input_tokens = input_tokens(used);
            self.usage.output_tokens = number(used, "output_tokens");
        }
        self.usage.cost_usd = value.get("total_cost_usd").and_then(Value::as_f64);
        if let Some(turns) = value.get("num_turns").and_then(Value::as_u64) {
            self.usage.turns = u32::try_from(turns).unwrap_or(u32::MAX);
        }
        let ok = value.get("is_error").and_then(Value::as_bool) == Some(false)
            && string(value, "subtype").is_none_or(|subtype| subtype == "success");
        vec![
            AgentEvent::Usage { total: self.usage },
            AgentEvent::Finished {
                ok,
                text: string(value, "result").or_else(|| string(value, "subtype")),
            },
        ]
    }
}

/// Tokens read from and written to the model's cache were given to the model as input too.
fn input_tokens(used: &Value) -> u64 {
    number(used, "input_tokens")
        + number(used, "cache_creation_input_tokens")
        + number(used, "cache_read_input_tokens")
}

fn block(block: &Value) -> Option<AgentEvent> {
    match block.get("type").and_then(Value::as_str)? {
        "text" => Some(AgentEvent::Message {
            text: string(block, "text")?,
        }),
        "thinking" => Some(AgentEvent::Thought {
            text: string(block, "thinking")?,
        }),
        "tool_use" => Some(AgentEvent::ToolStarted {
            id: string(block, "id")?,
            title: string(block, "name")?,
            input: readable(block.get("input")),
        }),
        _ => None,
    }
}

fn tool_results(value: &Value) -> Vec<AgentEvent> {
    let Some(message) = value.get("message") else {
        return vec![];
    };
    let results = array(message, "content").iter();
    results
        .filter(|block| string(block, "type").as_deref() == Some("tool_result"))
        .filter_map(|block| {
            Some(AgentEvent::ToolEnded {
                id: string(block, "tool_use_id")?,
                ok: block.get("is_error").and_then(Value::as_bool) != Some(true),
                output: readable(block.get("content")),
            })
        })
        .collect()
}
