//! `codex exec --json`: one JSON object a line; threads, turns and items.

use bulkhead_model::{AgentEvent, Usage};
use serde_json::Value;

use super::{
    AgentProtocol, ProtocolError, Step,
    json::{array, number, object, readable, string},
};

/// Reads the stream. `exec` is one turn, so the turn's end is the agent's.
#[derive(Debug, Default)]
pub struct Codex {
    usage: Usage,
    last_text: Option<String>,
    last_error: Option<String>,
}

impl AgentProtocol for Codex {
    fn line(&mut self, line: &str) -> Result<Step, ProtocolError> {
        let events = match object(line) {
            Some(value) => self
                .object(&value)
                .unwrap_or_else(|| vec![AgentEvent::Other { line: line.into() }]),
            None if line.trim().is_empty() => vec![],
            None => vec![AgentEvent::Other { line: line.into() }],
        };
        Ok(Step {
            events,
            write: vec![],
        })
    }
}

impl Codex {
    fn object(&mut self, value: &Value) -> Option<Vec<AgentEvent>> {
        match value.get("type")?.as_str()? {
            "thread.started" => Some(vec![AgentEvent::Started {
                agent: Some("codex".to_owned()),
                model: None,
                session: string(value, "thread_id"),
            }]),
            "turn.started" => Some(vec![]),
            "item.started" => Some(started(value.get("item")?).into_iter().collect()),
            "item.updated" => Some(plan(value.get("item")?).into_iter().collect()),
            "item.completed" => self.completed(value.get("item")?),
            "turn.completed" => Some(self.turn_completed(value.get("usage"))),
            "turn.failed" => Some(self.turn_failed(value)),
            "error" => {
                self.last_error = string(value, "message");
                None
            }
            _ => None,
        }
    }

    fn completed(&mut self, item: &Value) -> Option<Vec<AgentEvent>> {
        match item.get("type")?.as_str()? {
            "agent_message" => {
                let text = string(item, "text")?;
                self.last_text = Some(text.clone());
                Some(vec![AgentEvent::Message { text }])
            }
            "reasoning" => Some(vec![AgentEvent::Thought {
                text: string(item, "text")?,
            }]),
            "todo_list" => Some(plan(item).into_iter().collect()),
            "command_execution" | "file_change" | "mcp_tool_call" | "web_search" => {
                Some(vec![ended(item)?])
            }
            _ => None,
        }
    }

    fn turn_completed(&mut self, used: Option<&Value>) -> Vec<AgentEvent> {
        if let Some(used) = used {
            self.usage.input_tokens += number(used, "input_tokens");
            self.usage.output_tokens += number(used, "output_tokens");
        }
        self.usage.turns += 1;
        vec![
            AgentEvent::Usage { total: self.usage },
            AgentEvent::Finished {
                ok: true,
                text: self.last_text.take(),
            },
        ]
    }

    fn turn_failed(&mut self, value: &Value) -> Vec<AgentEvent> {
        let text = value
            .get("error")
            .and_then(|error| string(error, "message"));
        vec![AgentEvent::Finished {
            ok: false,
            text: text.or_else(|| self.last_error.take()),
        }]
    }
}

fn started(item: &Value) -> Option<AgentEvent> {
    let kind = string(item, "type")?;
    let input = match kind.as_str() {
        "command_execution" => string(item, "command"),
        "file_change" => readable(item.get("changes")),
        "mcp_tool_call" => readable(item.get("arguments")),
        "web_search" => string(item, "query"),
        _ => return plan(item),
    };
    Some(AgentEvent::ToolStarted {
        id: string(item, "id")?,
        title: string(item, "tool").unwrap_or(kind),
        input,
    })
}

fn ended(item: &Value) -> Option<AgentEvent> {
    let outputs = ["aggregated_output", "changes", "result", "error"];
    let output = outputs.iter().find_map(|key| readable(item.get(*key)));
    Some(AgentEvent::ToolEnded {
        id: string(item, "id")?,
        ok: string(item, "status").is_none_or(|status| status == "completed"),
        output,
    })
}

fn plan(item: &Value) -> Option<AgentEvent> {
    if string(item, "type")? != "todo_list" {
        return None;
    }
    let entries = array(item, "items").iter();
    Some(AgentEvent::Plan {
        entries: entries.filter_map(|entry| string(entry, "text")).collect(),
    })
}
