//! The agent's side of the Agent Client Protocol, version 1.

use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::{
    ScriptedError,
    file::Script,
    memory::{FIRST_MODE, Memory},
    perform::{Ended, perform},
};
use crate::protocol::Lines;

/// The connection to the client, with what the script told it to ignore.
pub(super) struct Client<R, W> {
    lines: Lines<R>,
    out: W,
    next_id: u64,
    pub(super) ignore_cancel: bool,
    pub(super) ignore_eof: bool,
    pub(super) closed: bool,
    /// None where the script forgets its conversations.
    pub(super) memory: Option<Memory>,
}

/// Something that the client did while a step was under way.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    Cancel,
    Closed,
    Answer {
        id: u64,
        result: Value,
    },
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Nothing,
}

#[derive(Debug)]
struct Session {
    id: String,
    cwd: PathBuf,
}

pub(super) async fn serve<R, W>(script: &Script, stdin: R, stdout: W) -> Result<u8, ScriptedError>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let mut client = Client {
        lines: Lines::new(stdin),
        out: stdout,
        next_id: 1,
        ignore_cancel: false,
        ignore_eof: false,
        closed: false,
        memory: None,
    };
    let mut session = None;
    while !client.closed {
        if let Heard::Request { id, method, params } = client.hear().await?
            && let Some(code) = client
                .request(script, &mut session, id, &method, &params)
                .await?
        {
            return Ok(code);
        }
    }
    if client.ignore_eof {
        std::future::pending::<()>().await;
    }
    Ok(0)
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send> Client<R, W> {
    /// The next message of the client. May be dropped while it waits.
    pub(super) async fn hear(&mut self) -> Result<Heard, ScriptedError> {
        if self.closed {
            std::future::pending::<()>().await;
        }
        let Some(line) = self.lines.next().await? else {
            self.closed = true;
            return Ok(Heard::Closed);
        };
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            return Ok(Heard::Nothing);
        };
        Ok(heard(&message))
    }

    pub(super) async fn send(&mut self, message: &Value) -> Result<(), ScriptedError> {
        let mut line = message.to_string();
        line.push('\n');
        self.send_raw(line.as_bytes()).await
    }

    pub(super) async fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ScriptedError> {
        let written = async {
            self.out.write_all(bytes).await?;
            self.out.flush().await
        };
        written.await.map_err(ScriptedError::Write)
    }

    /// Sends a request and returns its id, by which its answer is known.
    pub(super) async fn ask(&mut self, method: &str, params: &Value) -> Result<u64, ScriptedError> {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&request).await?;
        Ok(id)
    }

    async fn answer(&mut self, id: &Value, result: &Value) -> Result<(), ScriptedError> {
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        self.send(&answer).await
    }

    async fn refuse(&mut self, id: &Value, code: i64, message: &str) -> Result<(), ScriptedError> {
        let error = json!({"code": code, "message": message});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
            .await
    }

    /// Answers one request; the exit code where a step exits.
    async fn request(
        &mut self,
        script: &Script,
        session: &mut Option<Session>,
        id: Value,
        method: &str,
        params: &Value,
    ) -> Result<Option<u8>, ScriptedError> {
        match (method, &session) {
            ("initialize", _) => {
                let loads = script.remember.is_some();
                self.answer(&id, &initialized(loads)).await?;
            }
            ("session/load", _) if script.remember.is_some() => {
                *session = self.load(script, &id, params).await?;
            }
            ("session/set_mode", Some(_)) => {
                if let (Some(memory), Some(mode)) = (&mut self.memory, text(params, "modeId")) {
                    mode.clone_into(&mut memory.mode);
                    memory.keep().await;
                }
                self.answer(&id, &json!({})).await?;
            }
            ("session/new", _) => {
                let cwd = params.get("cwd").and_then(Value::as_str).unwrap_or(".");
                let mut made = Session {
                    id: "scripted-1".to_owned(),
                    cwd: cwd.into(),
                };
                let mut answer = json!({"sessionId": made.id});
                if let Some(file) = &script.remember {
                    made.id = format!("scripted-{}", uuid::Uuid::now_v7().simple());
                    answer = json!({"sessionId": made.id, "modes": modes(FIRST_MODE)});
                    self.memory = Some(Memory::begin(file, &made.cwd, &made.id));
                }
                self.answer(&id, &answer).await?;
                *session = Some(made);
            }
            ("session/prompt", Some(session)) => {
                return self.prompt(script, session, &id, params).await;
            }
            ("session/prompt", None) => self.refuse(&id, -32602, "there is no session").await?,
            _ => {
                let message = format!("the scripted agent has no method {method}");
                self.refuse(&id, -32601, &message).await?;
            }
        }
        Ok(None)
    }

    /// Tells the conversation again, as the protocol wants it, and goes on with it.
    async fn load(
        &mut self,
        script: &Script,
        id: &Value,
        params: &Value,
    ) -> Result<Option<Session>, ScriptedError> {
        let cwd = PathBuf::from(text(params, "cwd").unwrap_or("."));
        let wanted = text(params, "sessionId").unwrap_or_default();
        let memory = match &script.remember {
            Some(file) => Memory::load(file, &cwd, wanted).await,
            None => None,
        };
        let Some(memory) = memory else {
            self.refuse(id, -32602, "there is no such conversation")
                .await?;
            return Ok(None);
        };
        for prompt in &memory.prompts {
            for (kind, said) in [
                ("user_message_chunk", prompt.clone()),
                ("agent_message_chunk", format!("history of {prompt}")),
            ] {
                let content = json!({"type": "text", "text": said});
                let update = json!({"sessionUpdate": kind, "content": content});
                let params = json!({"sessionId": memory.id, "update": update});
                self.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}))
                    .await?;
            }
        }
        // As some agents do, it starts in the first mode, whatever the conversation was in.
        self.answer(id, &json!({"modes": modes(FIRST_MODE)}))
            .await?;
        let session = Session {
            id: memory.id.clone(),
            cwd,
        };
        self.memory = Some(memory);
        Ok(Some(session))
    }

    async fn prompt(
        &mut self,
        script: &Script,
        session: &Session,
        id: &Value,
        params: &Value,
    ) -> Result<Option<u8>, ScriptedError> {
        let prompt = prompt_text(params);
        if let Some(memory) = &mut self.memory {
            memory.prompts.push(prompt.clone());
            memory.keep().await;
        }
        match perform(self, script, &session.id, &session.cwd, &prompt).await? {
            Ended::Turn(reason) => self.answer(id, &json!({"stopReason": reason})).await?,
            Ended::Failed(message) => self.refuse(id, -32603, &message).await?,
            Ended::Exit(code) => return Ok(Some(code)),
            Ended::Closed => {}
        }
        Ok(None)
    }
}

fn heard(message: &Value) -> Heard {
    let id = message.get("id");
    match (message.get("method").and_then(Value::as_str), id) {
        (Some("session/cancel"), None) => Heard::Cancel,
        (Some(method), Some(id)) => Heard::Request {
            id: id.clone(),
            method: method.to_owned(),
            params: message.get("params").cloned().unwrap_or_default(),
        },
        (None, Some(id)) => match id.as_u64() {
            Some(id) => Heard::Answer {
                id,
                result: message.get("result").cloned().unwrap_or_default(),
            },
            None => Heard::Nothing,
        },
        _ => Heard::Nothing,
    }
}

fn text<'a>(params: &'a Value, name: &str) -> Option<&'a str> {
    params.get(name).and_then(Value::as_str)
}

fn modes(current: &str) -> Value {
    let mode = |id: &str| json!({"id": id, "name": id});
    json!({"currentModeId": current, "availableModes": [mode(FIRST_MODE), mode("code")]})
}

fn initialized(loads: bool) -> Value {
    let info = json!({"name": "scripted", "version": env!("CARGO_PKG_VERSION")});
    let capabilities = match loads {
        true => json!({"loadSession": true}),
        false => json!({}),
    };
    json!({"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": info, "authMethods": []})
}

fn prompt_text(params: &Value) -> String {
    let blocks = params.get("prompt").and_then(Value::as_array);
    let texts = blocks.into_iter().flatten();
    let texts: Vec<_> = texts
        .filter_map(|block| block.get("text").and_then(Value::as_str))
        .collect();
    texts.join("\n")
}
