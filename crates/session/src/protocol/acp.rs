//! The Agent Client Protocol, version 1, from the client's side.
//!
//! ```text
//! initialize ─▶ session/new ───────────────────────▶ session/prompt ─▶ (updates, permission requests)* ─▶ its answer: finished
//!            └▶ session/load ─▶ session/set_mode ──▲ ▲────────────── the next prompt ──────────────────────┘
//! ```
//!
//! A conversation that is loaded is told again by the agent before it answers: what it says until then is history and
//! no new output (H15). The mode that the conversation had is set again where the agent starts in another one.
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
    AgentProtocol, Conversation, ProtocolError, Step,
    json::{array, number, object, readable, string},
};
use crate::plug::McpServer;

/// Chunks of one message are joined up to this many bytes.
const JOINED: usize = 16 << 10;

/// What the next answer of the agent belongs to; the value is the request's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Initialize = 0,
    NewSession = 1,
    Prompt = 2,
    Nothing = 3,
    LoadSession = 4,
    SetMode = 5,
}

impl Waiting {
    const fn method(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::NewSession => "session/new",
            Self::Prompt => "session/prompt",
            Self::Nothing => "nothing",
            Self::LoadSession => "session/load",
            Self::SetMode => "session/set_mode",
        }
    }
}

/// One session, with one prompt after the other.
#[derive(Debug)]
pub struct Acp {
    cwd: String,
    /// Not yet said.
    prompt: Option<String>,
    mcp: Vec<Value>,
    resume: Option<Conversation>,
    loads: bool,
    mode: Option<String>,
    resumed: bool,
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
    #[serde(default)]
    agent_capabilities: Value,
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
    #[serde(default)]
    modes: Option<Modes>,
}

#[derive(Default, Deserialize)]
struct Loaded {
    #[serde(default)]
    modes: Option<Modes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Modes {
    #[serde(default)]
    current_mode_id: Option<String>,
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
            prompt: Some(prompt.to_owned()),
            mcp: vec![],
            resume: None,
            loads: false,
            mode: None,
            resumed: false,
            waiting: Waiting::Initialize,
            agent: None,
            session: None,
            usage: Usage::default(),
            joining: None,
        }
    }

    /// Waits for its first prompt.
    #[must_use]
    pub fn without_prompt(mut self) -> Self {
        self.prompt = None;
        self
    }

    /// Servers that the agent is told of.
    #[must_use]
    pub fn mcp(mut self, servers: &[McpServer]) -> Self {
        self.mcp = servers.iter().map(mcp_server).collect();
        self
    }

    /// Goes on with a conversation, where the agent can load it.
    #[must_use]
    pub fn resume(mut self, conversation: Conversation) -> Self {
        self.resume = Some(conversation);
        self
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
            return match self.waiting {
                // A conversation that is gone, or a mode that is: the work goes on without.
                Waiting::LoadSession => Ok(self.begin_anew()),
                Waiting::SetMode => Ok(self.ready()),
                _ => Err(refused(method, error)),
            };
        }
        let result = value.get("result").cloned().unwrap_or_default();
        match self.waiting {
            Waiting::Initialize => self.initialized(parse(method, result)?),
            Waiting::NewSession => Ok(self.session_made(parse(method, result)?)),
            Waiting::LoadSession => Ok(self.loaded(parse(method, result).unwrap_or_default())),
            Waiting::SetMode => {
                self.mode = self.resume.as_ref().and_then(|resume| resume.mode.clone());
                Ok(self.ready())
            }
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
        self.loads = answer.agent_capabilities.get("loadSession") == Some(&Value::Bool(true));
        match self.resume.clone() {
            Some(resume) if self.loads => {
                let params =
                    json!({"sessionId": resume.id, "cwd": self.cwd, "mcpServers": self.mcp});
                Ok(Step::line(self.request(Waiting::LoadSession, &params)))
            }
            _ => Ok(self.begin_anew()),
        }
    }

    fn begin_anew(&mut self) -> Step {
        self.joining = None;
        let params = json!({"cwd": self.cwd, "mcpServers": self.mcp});
        Step::line(self.request(Waiting::NewSession, &params))
    }

    /// What was said until now is what had been said before.
    fn loaded(&mut self, answer: Loaded) -> Step {
        self.joining = None;
        self.resumed = true;
        let resume = self.resume.clone();
        self.session = resume.as_ref().map(|resume| resume.id.clone());
        let wanted = resume.and_then(|resume| resume.mode);
        self.mode = answer.modes.and_then(|modes| modes.current_mode_id);
        match wanted {
            Some(mode) if self.mode.as_ref() != Some(&mode) => {
                let params = json!({"sessionId": self.session, "modeId": mode});
                Step::line(self.request(Waiting::SetMode, &params))
            }
            _ => self.ready(),
        }
    }

    /// The conversation stands: it is told so, and the prompt is said, where there is one.
    fn ready(&mut self) -> Step {
        let started = AgentEvent::Started {
            agent: self.agent.clone(),
            model: None,
            session: self.session.clone(),
        };
        self.waiting = Waiting::Nothing;
        let mut step = self
            .prompt
            .take()
            .map_or_else(Step::default, |prompt| self.say(&prompt));
        step.events.insert(0, started);
        step
    }

    fn say(&mut self, prompt: &str) -> Step {
        let prompt = json!([{"type": "text", "text": prompt}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        Step::line(self.request(Waiting::Prompt, &params))
    }

    fn session_made(&mut self, answer: NewSession) -> Step {
        self.session = Some(answer.session_id);
        self.mode = answer.modes.and_then(|modes| modes.current_mode_id);
        let mut step = self.ready();
        if let Some(AgentEvent::Started { model, .. }) = step.events.first_mut() {
            *model = answer.models.and_then(|models| models.current_model_id);
        }
        step
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
            Some("current_mode_update") => {
                self.mode = string(update, "currentModeId").or(self.mode.take());
                vec![]
            }
            // The client's own words, and what only an editor's controls would show.
            Some(
                "user_message_chunk"
                | "available_commands_update"
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
        if self.waiting == Waiting::LoadSession && is_update(&value) {
            return Ok(Step::default());
        }
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

    fn waits_for_prompt(&self) -> bool {
        self.waiting == Waiting::Nothing && self.session.is_some()
    }

    fn prompt(&mut self, text: &str) -> Step {
        self.say(text)
    }

    fn conversation(&self) -> Option<Conversation> {
        Some(Conversation {
            id: self.session.clone()?,
            mode: self.mode.clone(),
            loads: self.loads,
        })
    }

    fn resumed(&self) -> bool {
        self.resumed
    }
}

fn is_update(value: &Value) -> bool {
    value.get("method").and_then(Value::as_str) == Some("session/update")
}

fn mcp_server(server: &McpServer) -> Value {
    let pairs = |map: &std::collections::BTreeMap<String, String>| -> Value {
        map.iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect()
    };
    match server {
        McpServer::Program {
            name,
            command,
            args,
            env,
        } => json!({"name": name, "command": command, "args": args, "env": pairs(env)}),
        McpServer::Http { name, url, headers } => {
            json!({"type": "http", "name": name, "url": url, "headers": pairs(headers)})
        }
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
