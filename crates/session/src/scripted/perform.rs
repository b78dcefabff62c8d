//! Performing the steps of one turn.

use std::{path::Path, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    process::{ChildStdout, Command},
};

use super::{
    ScriptedError,
    file::{FileText, Script, Step, UsageStep},
    rpc::{Client, Heard},
};

/// The most bytes of a command's output that are shown; the rest is read and left out.
const MAX_OUTPUT: usize = 64 << 10;

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Turn(String),
    Failed(String),
    Exit(u8),
    /// The client went away.
    Closed,
}

/// What a step that went well means for the turn: go on, or end it.
type Went = Result<Option<Ended>, StepError>;

enum StepError {
    /// The step itself failed, in words.
    Step(String),
    Connection(ScriptedError),
    Interrupted(Ended),
}

impl From<ScriptedError> for StepError {
    fn from(error: ScriptedError) -> Self {
        Self::Connection(error)
    }
}

struct Turn<'a, R, W> {
    client: &'a mut Client<R, W>,
    session: &'a str,
    cwd: &'a Path,
    prompt: &'a str,
    tools: u32,
}

pub(super) async fn perform<R, W>(
    client: &mut Client<R, W>,
    script: &Script,
    session: &str,
    cwd: &Path,
    prompt: &str,
) -> Result<Ended, ScriptedError>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let mut turn = Turn {
        client,
        session,
        cwd,
        prompt,
        tools: 0,
    };
    for (index, step) in script.steps.iter().enumerate() {
        match turn.step(&step.value).await {
            Ok(None) => {}
            Ok(Some(ended)) | Err(StepError::Interrupted(ended)) => return Ok(ended),
            Err(StepError::Connection(error)) => return Err(error),
            Err(StepError::Step(what)) => {
                let (number, line) = (index + 1, step.referenced.line());
                let name = step.value.name();
                return Ok(Ended::Failed(format!(
                    "step {number} (`{name}`, line {line}): {what}"
                )));
            }
        }
    }
    Ok(Ended::Turn("end_turn".to_owned()))
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send> Turn<'_, R, W> {
    async fn step(&mut self, step: &Step) -> Went {
        match step {
            Step::Say(text) => self.chunk("agent_message_chunk", text).await?,
            Step::Think(text) => self.chunk("agent_thought_chunk", text).await?,
            Step::Plan(entries) => self.plan(entries).await?,
            Step::Write(file) => self.write(file, "write").await?,
            Step::Append(file) => self.write(file, "append").await?,
            Step::Delete(path) => self.delete(path).await?,
            Step::Run(line) => self.run(line, Strict::Yes).await?,
            Step::Try(line) => self.run(line, Strict::No).await?,
            Step::SleepMs(ms) => {
                self.wait(tokio::time::sleep(Duration::from_millis(*ms)))
                    .await?
            }
            Step::Ask(title) => self.permission(title).await?,
            Step::Mode(mode) => self.mode(mode).await?,
            Step::Usage(usage) => self.usage(usage).await?,
            Step::Fail(words) => return Err(StepError::Step(words.clone())),
            Step::Stop(reason) => return Ok(Some(Ended::Turn(reason.clone()))),
            Step::Exit(code) => return Ok(Some(Ended::Exit(*code))),
            Step::Hang(_) => self.wait(std::future::pending()).await?,
            Step::IgnoreCancel(_) => self.client.ignore_cancel = true,
            Step::IgnoreEof(_) => self.client.ignore_eof = true,
            Step::FloodBytes(bytes) => self.flood(*bytes).await?,
            Step::OversizeLineBytes(bytes) => self.oversize(*bytes).await?,
            Step::Raw(line) => self.client.send_raw(format!("{line}\n").as_bytes()).await?,
        }
        // A cancel that came during a step that does not wait is heard before the next one.
        self.wait(tokio::task::yield_now()).await?;
        Ok(None)
    }

    fn text(&self, text: &str) -> String {
        let all = self.client.memory.as_ref();
        let all = all.map_or_else(String::new, |memory| memory.prompts.join(" | "));
        text.replace("{prompts}", &all)
            .replace("{prompt}", self.prompt)
    }

    async fn mode(&mut self, mode: &str) -> Result<(), ScriptedError> {
        if let Some(memory) = &mut self.client.memory {
            mode.clone_into(&mut memory.mode);
            memory.keep().await;
        }
        self.update(json!({"sessionUpdate": "current_mode_update", "currentModeId": mode}))
            .await
    }

    async fn update(&mut self, update: Value) -> Result<(), ScriptedError> {
        let params = json!({"sessionId": self.session, "update": update});
        let message = json!({"jsonrpc": "2.0", "method": "session/update", "params": params});
        self.client.send(&message).await
    }

    async fn chunk(&mut self, kind: &str, text: &str) -> Result<(), ScriptedError> {
        let content = json!({"type": "text", "text": self.text(text)});
        self.update(json!({"sessionUpdate": kind, "content": content}))
            .await
    }

    async fn plan(&mut self, entries: &[String]) -> Result<(), ScriptedError> {
        let entry = |text| json!({"content": text, "priority": "medium", "status": "pending"});
        let entries: Vec<_> = entries.iter().map(entry).collect();
        self.update(json!({"sessionUpdate": "plan", "entries": entries}))
            .await
    }

    async fn usage(&mut self, usage: &UsageStep) -> Result<(), ScriptedError> {
        let mut update =
            json!({"sessionUpdate": "usage_update", "used": usage.tokens, "size": 200_000});
        if let (Some(amount), Some(fields)) = (usage.cost_usd, update.as_object_mut()) {
            let cost = json!({"amount": amount, "currency": "USD"});
            fields.insert("cost".to_owned(), cost);
        }
        self.update(update).await
    }

    async fn write(&mut self, file: &FileText, verb: &str) -> Result<(), StepError> {
        let path = self.cwd.join(&file.path);
        let text = self.text(&file.text);
        let id = self.tool(&format!("{verb} {}", file.path), "edit").await?;
        let written = async {
            if let Some(dir) = path.parent() {
                tokio::fs::create_dir_all(dir).await?;
            }
            if verb == "append" {
                let mut old = tokio::fs::read(&path).await.unwrap_or_default();
                old.extend_from_slice(text.as_bytes());
                return tokio::fs::write(&path, old).await;
            }
            tokio::fs::write(&path, text).await
        };
        let result = written.await.map_err(|error| error.to_string());
        self.tool_ended(&id, result.as_ref().err().map(String::as_str), "")
            .await?;
        result.map_err(|error| StepError::Step(format!("{verb} {}: {error}", file.path)))
    }

    async fn delete(&mut self, path: &str) -> Result<(), StepError> {
        let id = self.tool(&format!("delete {path}"), "delete").await?;
        let removed = tokio::fs::remove_file(self.cwd.join(path)).await;
        let result = removed.map_err(|error| error.to_string());
        self.tool_ended(&id, result.as_ref().err().map(String::as_str), "")
            .await?;
        result.map_err(|error| StepError::Step(format!("delete {path}: {error}")))
    }

    async fn run(&mut self, line: &str, strict: Strict) -> Result<(), StepError> {
        let line = self.text(line);
        let id = self.tool(&line, "execute").await?;
        let (cwd, shell) = (self.cwd.to_owned(), line.clone());
        let ran = self
            .wait(async move { shell_output(&cwd, &shell).await })
            .await?;
        let (status, output) = ran.map_err(|error| StepError::Step(error.to_string()))?;
        let failed = (!status.success()).then(|| format!("the command ended with {status}"));
        self.tool_ended(&id, failed.as_deref(), &output).await?;
        match (failed, strict) {
            (Some(what), Strict::Yes) => Err(StepError::Step(what)),
            _ => Ok(()),
        }
    }

    async fn permission(&mut self, title: &str) -> Result<(), StepError> {
        let option = |id, kind| json!({"optionId": id, "name": id, "kind": kind});
        let options = [
            option("always", "allow_always"),
            option("once", "allow_once"),
            option("no", "reject_once"),
        ];
        let tool = json!({"toolCallId": "permission", "title": title});
        let params = json!({"sessionId": self.session, "toolCall": tool, "options": options});
        let asked = self
            .client
            .ask("session/request_permission", &params)
            .await?;
        loop {
            match self.client.hear().await? {
                Heard::Answer { id, result } if id == asked => return allowed(&result),
                other => self.interrupt(&other)?,
            }
        }
    }

    async fn flood(&mut self, bytes: u64) -> Result<(), ScriptedError> {
        let text = "flood ".repeat(170);
        for _ in 0..bytes.div_ceil(1 << 10) {
            self.chunk("agent_message_chunk", &text).await?;
        }
        Ok(())
    }

    async fn oversize(&mut self, bytes: u64) -> Result<(), ScriptedError> {
        let piece = [b'x'; 8 << 10];
        let mut left = bytes;
        while left > 0 {
            let now = usize::try_from(left)
                .unwrap_or(piece.len())
                .min(piece.len());
            self.client.send_raw(&piece[..now]).await?;
            left -= now as u64;
        }
        self.client.send_raw(b"\n").await
    }

    async fn tool(&mut self, title: &str, kind: &str) -> Result<String, ScriptedError> {
        self.tools += 1;
        let id = format!("tool-{}", self.tools);
        let update = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title,
                            "kind": kind, "status": "in_progress"});
        self.update(update).await?;
        Ok(id)
    }

    async fn tool_ended(
        &mut self,
        id: &str,
        failed: Option<&str>,
        output: &str,
    ) -> Result<(), ScriptedError> {
        let status = if failed.is_none() {
            "completed"
        } else {
            "failed"
        };
        let text = [output, failed.unwrap_or_default()].concat();
        let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
        self.update(
            json!({"sessionUpdate": "tool_call_update", "toolCallId": id,
                           "status": status, "content": content}),
        )
        .await
    }

    /// Waits for `future` and listens to the client meanwhile.
    async fn wait<F: Future>(&mut self, future: F) -> Result<F::Output, StepError> {
        tokio::pin!(future);
        loop {
            let heard = tokio::select! {
                biased;
                heard = self.client.hear() => heard?,
                done = &mut future => return Ok(done),
            };
            self.interrupt(&heard)?;
        }
    }

    fn interrupt(&self, heard: &Heard) -> Result<(), StepError> {
        match heard {
            Heard::Cancel if !self.client.ignore_cancel => {
                Err(StepError::Interrupted(Ended::Turn("cancelled".to_owned())))
            }
            Heard::Closed if !self.client.ignore_eof => Err(StepError::Interrupted(Ended::Closed)),
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy)]
enum Strict {
    Yes,
    No,
}

fn allowed(result: &Value) -> Result<(), StepError> {
    let chosen = result.pointer("/outcome/optionId").and_then(Value::as_str);
    match chosen {
        Some("once" | "always") => Ok(()),
        _ => Err(StepError::Step("permission was not given".to_owned())),
    }
}

/// Runs a line; its output and errors come together, cut at a limit.
async fn shell_output(
    cwd: &Path,
    line: &str,
) -> std::io::Result<(std::process::ExitStatus, String)> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("exec 2>&1\n{line}")])
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut kept = Vec::new();
    if let Some(stdout) = &mut child.stdout {
        read_some(stdout, &mut kept).await?;
    }
    let status = child.wait().await?;
    Ok((status, String::from_utf8_lossy(&kept).into_owned()))
}

async fn read_some(stdout: &mut ChildStdout, kept: &mut Vec<u8>) -> std::io::Result<()> {
    let mut piece = vec![0; 8 << 10];
    loop {
        let count = stdout.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        let room = MAX_OUTPUT.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(piece.get(..room).unwrap_or_default());
    }
}
