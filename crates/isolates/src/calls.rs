//! What a plugin's `host` calls do outside its process: JSON arguments in, JSON out, and between them either
//! [`crate::fetch`] or a typed question to the platform (P4, D9).
//!
//! A call walks this way: its [`permission`] is looked for; its arguments become the function's own types, whose limits
//! are checked (an error names the argument, what was found, and what was expected); the platform is asked; its answer
//! is checked against the question, and becomes JSON. A platform that does not offer a function is `unavailable`.

mod agents;
mod arguments;
mod connection;
mod decide;
mod llm;
mod media;
mod permission;
pub mod rehearsal;
mod secret;
mod session;
mod ssh;
mod todos;
mod workspace;

use async_trait::async_trait;
use bulkhead_wire::{
    methods::{self, Method, Where},
    pipe,
    platform::{answer::Answer as Answered, call::Call as Asked},
};
use serde_json::Value;

use crate::{
    call_error::{CallError, Code},
    context::InvocationContext,
    fetch::Fetch,
    host_calls::HostCalls,
};
use arguments::{Arguments, Encoding};

pub use permission::permission_of;

/// The number of `host.fetch` in the table of methods.
const FETCH: u32 = 4;

/// All functions of `host` that are not carried out inside.
pub struct HostFunctions {
    fetch: Fetch,
}

impl HostFunctions {
    pub const fn new(fetch: Fetch) -> Self {
        Self { fetch }
    }

    /// Everything that is checked before a call goes out. Gives the URL that `host.fetch` would begin with.
    pub(crate) fn check(
        &self,
        invocation: &InvocationContext,
        call: &pipe::Call,
    ) -> Result<String, CallError> {
        let method = method_of(call)?;
        permission::check(invocation.authority(), method)?;
        if method.number == FETCH {
            return self.fetch.check(invocation, &call.arguments_json);
        }
        let arguments = Arguments::read(method.path, &call.arguments_json)?;
        question(invocation, method, arguments).map(|_| String::new())
    }

    async fn carry_out(
        &self,
        invocation: &InvocationContext,
        call: &pipe::Call,
    ) -> Result<pipe::Value, CallError> {
        let method = method_of(call)?;
        permission::check(invocation.authority(), method)?;
        if method.number == FETCH {
            return self.fetch.fetch(invocation, &call.arguments_json).await;
        }
        let arguments = Arguments::read(method.path, &call.arguments_json)?;
        let Question { asked, reading } = question(invocation, method, arguments)?;
        match invocation.ask(asked).await {
            Answered::Error(error) => Err(error.into()),
            answer if answer.method() == Some(method.number) => value(invocation, reading, answer)
                .map_err(|error| {
                    CallError::new(
                        error.code,
                        format!("host.{}: {}", method.path, error.message),
                    )
                }),
            _ => {
                let message = format!("host.{}: the platform answered something else", method.path);
                Err(CallError::new(Code::Failed, message))
            }
        }
    }
}

#[async_trait]
impl HostCalls for HostFunctions {
    async fn call(&self, invocation: &InvocationContext, call: pipe::Call) -> pipe::Answer {
        let outcome = match self.carry_out(invocation, &call).await {
            Ok(value) => pipe::answer::Outcome::Value(value),
            Err(error) => pipe::answer::Outcome::Error(error.into()),
        };
        pipe::Answer {
            id: call.id,
            outcome: Some(outcome),
        }
    }
}

fn method_of(call: &pipe::Call) -> Result<&'static Method, CallError> {
    methods::by_number(call.method)
        .filter(|method| method.carried_out != Where::Inside)
        .ok_or_else(|| CallError::bad_request("`host` has no such function outside the isolate"))
}

/// What the platform is asked, and what must be remembered to read its answer.
struct Question {
    asked: Asked,
    reading: Reading,
}

enum Reading {
    Plain,
    /// Bytes come as text or base64.
    Bytes(Encoding),
    /// The name of the secret.
    Secret(String),
    /// One of these was to be chosen.
    Options(Vec<String>),
    Range {
        min: f64,
        max: f64,
    },
    /// The text is JSON.
    Json,
    /// So many were sent.
    Frames(usize),
}

impl From<Asked> for Question {
    fn from(asked: Asked) -> Self {
        Self {
            asked,
            reading: Reading::Plain,
        }
    }
}

impl Question {
    const fn reading(asked: Asked, reading: Reading) -> Self {
        Self { asked, reading }
    }
}

fn question(
    invocation: &InvocationContext,
    method: &Method,
    arguments: Arguments,
) -> Result<Question, CallError> {
    match method.number {
        3 => secret::ask(invocation, arguments),
        30 => session::messages(arguments),
        31 => session::post(arguments),
        32 => session::send_error(arguments),
        33 => todos::list(arguments),
        34 => todos::set(arguments),
        35 => todos::timers(arguments),
        36 => todos::set_timer(arguments),
        37 => todos::cancel_timer(arguments),
        38 => llm::complete(arguments, Asked::SessionLlmComplete),
        39 => session::info(arguments),
        50 => agents::list(arguments),
        51 => agents::ask(arguments),
        52 => agents::send(arguments),
        55 => agents::models(arguments),
        60 => workspace::read(arguments),
        61 => workspace::write(arguments),
        62 => workspace::list(arguments),
        63 => workspace::stat(arguments),
        64 => workspace::remove(arguments),
        65 => workspace::move_to(arguments),
        70 => llm::complete(arguments, Asked::LlmComplete),
        75 => decide::noul(arguments),
        76 => decide::choose(arguments),
        77 => decide::score(arguments),
        80 => media::upload(arguments),
        81 => media::transcode(arguments),
        82 => media::info(arguments),
        90 => ssh::command(arguments),
        95 => connection::send(arguments),
        _ => {
            let message = format!("host.{} is not carried out by this service", method.path);
            Err(CallError::new(Code::Unavailable, message))
        }
    }
}

fn value(
    invocation: &InvocationContext,
    reading: Reading,
    answer: Answered,
) -> Result<pipe::Value, CallError> {
    let json = match answer {
        Answered::Error(error) => return Err(error.into()),
        Answered::GetSecret(secret) => secret::value(invocation, &reading, secret)?,
        Answered::SessionMessages(messages) => session::messages_value(messages),
        Answered::SessionPost(posted) | Answered::AgentsSend(posted) => {
            session::posted_value(&posted)
        }
        Answered::SessionSendError(_) => Value::Null,
        Answered::SessionTodosList(todos) | Answered::SessionTodosSet(todos) => todos::value(todos),
        Answered::SessionTimersList(timers) => todos::timers_value(timers),
        Answered::SessionTimersSet(timer) => todos::timer_value(timer),
        Answered::SessionTimersCancel(cancelled) => cancelled.cancelled.into(),
        Answered::SessionLlmComplete(completion) | Answered::LlmComplete(completion) => {
            llm::value(completion, &reading)?
        }
        Answered::SessionInfo(session) => session::info_value(session),
        Answered::AgentsList(agents) => agents::value(agents),
        Answered::AgentsAsk(answer) => agents::answer_value(&answer),
        Answered::ModelsList(models) => agents::models_value(models),
        Answered::WorkspaceRead(file) => return Ok(workspace::file_value(file, &reading)),
        Answered::WorkspaceWrite(written) => workspace::written_value(&written),
        Answered::WorkspaceList(entries) => workspace::entries_value(entries),
        Answered::WorkspaceStat(entry) | Answered::WorkspaceMove(entry) => {
            workspace::entry_value(entry)
        }
        Answered::WorkspaceRemove(removed) => removed.removed.into(),
        Answered::DecideNoul(noul) => decide::noul_value(noul)?,
        Answered::DecideChoose(chosen) => decide::chosen_value(chosen, reading)?,
        Answered::DecideScore(score) => decide::score_value(score, &reading)?,
        Answered::MediaUpload(media)
        | Answered::MediaTranscode(media)
        | Answered::MediaInfo(media) => media::value(media),
        Answered::SshCommand(ran) => ssh::value(ran),
        Answered::ConnectionSend(sent) => connection::value(&sent, &reading)?,
    };
    Ok(plain(&json))
}

fn plain(json: &Value) -> pipe::Value {
    pipe::Value {
        json: json.to_string(),
        body: None,
    }
}

/// An object without what is absent: a plugin sees `undefined`, not `null`.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let there = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect())
}

fn failed(message: impl Into<String>) -> CallError {
    CallError::new(Code::Failed, message)
}
