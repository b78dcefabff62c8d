//! The Agent Client Protocol, version 1, from the client's side.
//!
//! ```text
//! initialize ─▶ session/new ─▶ session/prompt ─▶ (updates, permission requests)* ─▶ its answer: finished
//! ```
//!
//! Nothing of the client's own is offered: neither `fs/*` nor `terminal/*` (version 2 removes them), so the
//! agent works with its own tools inside the sandbox. Permission is always given, and recorded (R7): the
//! gate after the phase is where a person decides. The few messages are read and written here rather than
//! through the protocol's library, whose line reads have no bound and whose types turn unknown kinds of
//! updates into errors.

use bulkhead_model::{AgentEvent, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    AgentProtocol, ProtocolError, Step,
    json::{array, number, object, readable, string},
};

/// Chunks of one message are joined up to this many bytes.
const JOINED: usize = 16 << 10;

/// What the next answer of the agent belongs to; the value is the request's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Initialize = 0,
    NewSession = 1,
    Prompt = 2,
    Nothing = 3,
}

impl Waiting {
    const fn method(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::NewSession => "session/new",
            Self::Prompt => "session/prompt",
            Self::Nothing => "nothing",
        }
    }
}

/// One session with one prompt.
#[derive(Debug)]
pub struct Acp {
    cwd: String,
    prompt: String,
    waiting: Waiting,
    agent: Option<String>,
    session: Option<String>,
    usage: Usage,
    /// A message or thought whose chunks are still being joined.
    joining: Option<AgentEvent>,
}

#[derive(Deserialize)]
struct RpcError {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    protocol_version: i64,
    #[serde(default)]
    agent_info: Option<AgentInfo>,
}

#[derive(Deserialize)]
struct AgentInfo {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewSession {
    session_id: String,
    #[serde(default)]
    models: Option<Models>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Models {
    #[serde(default)]
    current_model_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Prompted {
    stop_reason: String,
    #[serde(default)]
    usage: Value,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

impl Acp {
    pub fn new(cwd: &str, prompt: &str) -> Self {
        Self {
            cwd: cwd.to_owned(),
            prompt: prompt.to_owned(),
            waiting: Waiting::Initialize,
            agent: None,
            session: None,
            usage: Usage::default(),
            joining: None,
        }
    }

    fn request(&mut self, waiting: Waiting, params: &Value) -> String {
        self.waiting = waiting;
        json!({"jsonrpc": "2.0", "id": waiting as i64, "method": waiting.method(), "params": params})
            .to_string()
    }

    /// The agent's answer to the one request that is open. Answers to anything else are kept as they are.
    fn answer(&mut self, value: &Value, line: &str) -> Result<Step, ProtocolError> {
        if value.get("id").and_then(Value::as_i64) != Some(self.waiting as i64) {
            return Ok(Step::event(other(line)));
        }
        let method = self.waiting.method();
        if let Some(error) = value.get("error") {
            return Err(refused(method, error));
        }
        let result = value.get("result").cloned().unwrap_or_default();
        match self.waiting {
            Waiting::Initialize => self.initialized(parse(method, result)?),
            Waiting::NewSession => Ok(self.session_made(parse(method, result)?)),
            Waiting::Prompt => Ok(self.prompted(parse(method, result)?)),
            Waiting::Nothing => Ok(Step::event(other(line))),
        }
    }

    fn initialized(&mut self, answer: Initialized) -> Result<Step, ProtocolError> {
        if answer.protocol_version != 1 {
            return Err(ProtocolError::Version {
                theirs: answer.protocol_version,
            });
        }
        self.agent = answer.agent_info.map(|info| info.name);
        let params = json!({"cwd": self.cwd, "mcpServers": []});
        Ok(Step::line(self.request(Waiting::NewSession, &params)))
    }

    fn session_made(&mut self, answer: NewSession) -> Step {
        self.session = Some(answer.session_id.clone());
        let prompt = json!([{"type": "text", "text": self.prompt}]);
        let params = json!({"sessionId": answer.session_id, "prompt": prompt});
        Step {
            write: vec![self.request(Waiting::Prompt, &params)],
            events: vec![AgentEvent::Started {
                agent: self.agent.clone(),
                model: answer.models.and_then(|models| models.current_model_id),
                session: self.session.clone(),
            }],
        }
    }

    fn prompted(&mut self, answer: Prompted) -> Step {
        self.waiting = Waiting::Nothing;
        self.usage.turns += 1;
        self.count_tokens(&answer);
        let ok = answer.stop_reason == "end_turn";
        let text = (!ok).then(|| format!("the agent stopped early: {}", answer.stop_reason));
        let total = AgentEvent::Usage { total: self.usage };
        Step {
            events: vec![total, AgentEvent::Finished { ok, text }],
            write: vec![],
        }
    }

    /// Where an agent says what its turn used: in the answer's `usage`, or in gemini's own field.
    fn count_tokens(&mut self, answer: &Prompted) {
        let own = answer.meta.pointer("/quota/token_count");
        let own = own.map(|own| (number(own, "input_tokens"), number(own, "output_tokens")));
        let usage = &answer.usage;
        let (input, output) =
            own.unwrap_or_else(|| (number(usage, "inputTokens"), number(usage, "outputTokens")));
        if input + output > 0 {
            (self.usage.input_tokens, self.usage.output_tokens) = (input, output);
        }
    }

    fn asked(&mut self, method: &str, value: &Value) -> Step {
        let id = value.get("id").cloned().unwrap_or_default();
        if method != "session/request_permission" {
            let error = json!({"code": -32601, "message": format!("{method} is not offered")});
            return Step::line(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
        }
        let params = value.get("params").cloned().unwrap_or_default();
        let tool = params.get("toolCall").cloned().unwrap_or_default();
        let title = string(&tool, "title").or_else(|| string(&tool, "toolCallId"));
        let (answer, outcome) = permit(array(&params, "options"));
        let result = json!({"outcome": outcome});
        Step {
            events: vec![AgentEvent::Permission {
                title: title.unwrap_or_default(),
                answer,
            }],
            write: vec![json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()],
        }
    }

    fn update(&mut self, value: &Value, line: &str) -> Vec<AgentEvent> {
        let update = value.pointer("/params/update");
        let Some(update) = update.filter(|update| update.is_object()) else {
            return vec![other(line)];
        };
        match string(update, "sessionUpdate").as_deref() {
            // The client's own words, and what only an editor's controls would show.
            Some(
                "user_message_chunk"
                | "available_commands_update"
                | "current_mode_update"
                | "config_option_update"
                | "session_info_update",
            ) => vec![],
            Some("tool_call") => tool_call(update),
            Some("tool_call_update") => tool_ended(update).into_iter().collect(),
            Some("plan") => vec![plan(update)],
            Some("usage_update") => vec![self.used(update)],
            _ => vec![other(line)],
        }
    }

    fn used(&mut self, update: &Value) -> AgentEvent {
        // `used` is what the context holds now; the largest seen stands for the input.
        let context = update.get("used").and_then(Value::as_u64).unwrap_or(0);
        self.usage.input_tokens = self.usage.input_tokens.max(context);
        let cost = update.get("cost").filter(|cost| is_dollars(cost));
        if let Some(cost) = cost
            .and_then(|cost| cost.get("amount"))
            .and_then(Value::as_f64)
        {
            self.usage.cost_usd = Some(cost);
        }
        AgentEvent::Usage { total: self.usage }
    }

    /// Joins `event` to the one being joined, or ends that one; `None` where it was joined.
    fn join(&mut self, event: AgentEvent) -> Option<AgentEvent> {
        match (&mut self.joining, &event) {
            (Some(AgentEvent::Message { text }), AgentEvent::Message { text: more })
            | (Some(AgentEvent::Thought { text }), AgentEvent::Thought { text: more })
                if text.len() + more.len() <= JOINED =>
            {
                text.push_str(more);
                None
            }
            _ => self.joining.replace(event),
        }
    }
}

impl AgentProtocol for Acp {
    fn start(&mut self) -> Step {
        let fs = json!({"readTextFile": false, "writeTextFile": false});
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": {"fs": fs, "terminal": false},
            "clientInfo": {"name": "bulkhead", "version": env!("CARGO_PKG_VERSION")},
        });
        Step::line(self.request(Waiting::Initialize, &params))
    }

    fn line(&mut self, line: &str) -> Result<Step, ProtocolError> {
        let Some(value) = object(line) else {
            let blank = line.trim().is_empty();
            return Ok(if blank {
                Step::default()
            } else {
                Step::event(other(line))
            });
        };
        if let Some(chunk) = chunk(&value) {
            return Ok(Step {
                events: self.join(chunk).into_iter().collect(),
                write: vec![],
            });
        }
        let mut step = match (string(&value, "method"), value.get("id")) {
            (None, _) => self.answer(&value, line)?,
            (Some(method), Some(_)) => self.asked(&method, &value),
            (Some(method), None) if method == "session/update" => Step {
                events: self.update(&value, line),
                write: vec![],
            },
            (Some(_), None) => Step::event(other(line)),
        };
        if let Some(joined) = self.joining.take() {
            step.events.insert(0, joined);
        }
        Ok(step)
    }

    fn quiet(&mut self) -> Step {
        Step {
            events: self.joining.take().into_iter().collect(),
            write: vec![],
        }
    }

    fn cancel(&mut self) -> Step {
        match &self.session {
            Some(session) => {
                let params = json!({"sessionId": session});
                let cancel =
                    json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params});
                Step::line(cancel.to_string())
            }
            None => Step::default(),
        }
    }

    fn reads_stdin(&self) -> bool {
        true
    }
}

fn other(line: &str) -> AgentEvent {
    AgentEvent::Other {
        line: line.to_owned(),
    }
}

fn parse<T: for<'de> Deserialize<'de>>(
    method: &'static str,
    result: Value,
) -> Result<T, ProtocolError> {
    serde_json::from_value(result).map_err(|source| ProtocolError::Answer { method, source })
}

/// Codes differ from agent to agent, so the words are what counts; some agents put them into `data`.
fn refused(method: &'static str, error: &Value) -> ProtocolError {
    let parsed = serde_json::from_value::<RpcError>(error.clone());
    let (code, mut message, data) = match parsed {
        Ok(error) => (error.code, error.message, error.data),
        Err(_) => (0, error.to_string(), None),
    };
    if let Some(detail) = readable(data.as_ref()) {
        message = format!("{message}: {detail}");
    }
    ProtocolError::Refused {
        method,
        code,
        message: super::text::cut(message, 4 << 10),
    }
}

/// Allowing once is enough; where only "always" is offered, that; where nothing can be allowed, cancelled.
fn permit(options: &[Value]) -> (String, Value) {
    let of_kind = |kind: &str| {
        let option = options
            .iter()
            .find(|option| string(option, "kind").as_deref() == Some(kind));
        option.and_then(|option| string(option, "optionId"))
    };
    for kind in ["allow_once", "allow_always"] {
        if let Some(id) = of_kind(kind) {
            return (
                kind.to_owned(),
                json!({"outcome": "selected", "optionId": id}),
            );
        }
    }
    ("cancelled".to_owned(), json!({"outcome": "cancelled"}))
}

/// The text of a message's or thought's chunk, where `value` is such an update.
fn chunk(value: &Value) -> Option<AgentEvent> {
    let update = value.pointer("/params/update")?;
    let text = || content_text(update.get("content")?);
    match update.get("sessionUpdate")?.as_str()? {
        "agent_message_chunk" => Some(AgentEvent::Message { text: text()? }),
        "agent_thought_chunk" => Some(AgentEvent::Thought { text: text()? }),
        _ => None,
    }
}

/// The readable part of one block of content: text, or the name of what cannot be shown as text.
fn content_text(content: &Value) -> Option<String> {
    let kind = content.get("type")?.as_str()?;
    match kind {
        "text" => string(content, "text"),
        "resource_link" => string(content, "uri"),
        "resource" => content
            .pointer("/resource/text")
            .and_then(Value::as_str)
            .map(str::to_owned),
        _ => Some(format!("[{kind}]")),
    }
}

fn tool_call(update: &Value) -> Vec<AgentEvent> {
    let id = string(update, "toolCallId").unwrap_or_default();
    let started = AgentEvent::ToolStarted {
        title: string(update, "title").unwrap_or_else(|| id.clone()),
        input: readable(update.get("rawInput")),
        id,
    };
    std::iter::once(started).chain(tool_ended(update)).collect()
}

fn tool_ended(update: &Value) -> Option<AgentEvent> {
    let ok = match string(update, "status")?.as_str() {
        "completed" => true,
        "failed" => false,
        _ => return None,
    };
    let texts: Vec<_> = array(update, "content")
        .iter()
        .filter_map(tool_content)
        .collect();
    let output = (!texts.is_empty()).then(|| texts.join("\n"));
    Some(AgentEvent::ToolEnded {
        id: string(update, "toolCallId").unwrap_or_default(),
        ok,
        output: output.or_else(|| readable(update.get("rawOutput"))),
    })
}

fn tool_content(content: &Value) -> Option<String> {
    match content.get("type")?.as_str()? {
        "content" => content_text(content.get("content")?),
        "diff" => Some(format!("edited {}", string(content, "path")?)),
        _ => None,
    }
}

fn plan(update: &Value) -> AgentEvent {
    let entries = array(update, "entries").iter();
    AgentEvent::Plan {
        entries: entries
            .filter_map(|entry| string(entry, "content"))
            .collect(),
    }
}

fn is_dollars(cost: &Value) -> bool {
    string(cost, "currency").is_none_or(|currency| currency.eq_ignore_ascii_case("usd"))
}
