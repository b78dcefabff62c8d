//! `host.session.llm.complete` and `host.llm.complete`.

use bulkhead_wire::platform::{self, call::Call as Asked, completion::Stopped};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Arguments, Question, Reading, failed, object};
use crate::call_error::CallError;

const SYSTEM_BYTES_MAX: usize = 256 << 10;
const MESSAGES_MAX: usize = 200;
const MESSAGES_BYTES_MAX: usize = 1 << 20;
const MODEL_BYTES_MAX: usize = 200;
const TOKENS: u32 = 1_024;
const TOKENS_MAX: u32 = 32_000;
const STOPS_MAX: usize = 8;
const STOP_BYTES_MAX: usize = 64;
const SCHEMA_BYTES_MAX: usize = 64 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Request {
    prompt: Option<String>,
    messages: Option<Vec<Turn>>,
    system: Option<String>,
    model: Option<String>,
    max_tokens: Option<u32>,
    temperature: Option<f64>,
    stop: Option<Vec<String>>,
    schema: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    role: Role,
    text: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

pub(super) fn complete(
    mut arguments: Arguments,
    ask: fn(platform::Complete) -> Asked,
) -> Result<Question, CallError> {
    let mut request: Request = arguments.take_text_or_object("prompt")?;
    arguments.end()?;
    let turns = match (request.prompt.take(), request.messages.take()) {
        (Some(text), None) => vec![Turn {
            role: Role::User,
            text,
        }],
        (None, Some(turns)) => turns,
        _ => return Err(arguments.bad("expected either `prompt` or `messages`")),
    };
    check_turns(&arguments, &turns)?;
    check_options(&arguments, &request)?;
    let schema_json = request
        .schema
        .map(|schema| Value::Object(schema).to_string());
    arguments.text(
        "schema",
        schema_json.as_deref().unwrap_or_default(),
        0,
        SCHEMA_BYTES_MAX,
    )?;
    let reading = match schema_json {
        Some(_) => Reading::Json,
        None => Reading::Plain,
    };
    let messages = turns.into_iter().map(|turn| platform::Turn {
        role: match turn.role {
            Role::User => platform::Role::User.into(),
            Role::Assistant => platform::Role::Assistant.into(),
        },
        text: turn.text,
    });
    let asked = platform::Complete {
        system: request.system,
        messages: messages.collect(),
        model: request.model,
        output_tokens_max: request.max_tokens.unwrap_or(TOKENS),
        temperature: request.temperature,
        stop: request.stop.unwrap_or_default(),
        schema_json,
    };
    Ok(Question::reading(ask(asked), reading))
}

fn check_turns(arguments: &Arguments, turns: &[Turn]) -> Result<(), CallError> {
    arguments.count("messages", turns.len(), 1, MESSAGES_MAX)?;
    let bytes: usize = turns.iter().map(|turn| turn.text.len()).sum();
    if bytes > MESSAGES_BYTES_MAX {
        let what =
            format_args!("the messages have {bytes} bytes; at most {MESSAGES_BYTES_MAX} are taken");
        return Err(arguments.bad(what));
    }
    if turns.iter().any(|turn| turn.text.is_empty()) {
        return Err(arguments.bad("a message has no text"));
    }
    match turns.last() {
        Some(Turn {
            role: Role::User, ..
        }) => Ok(()),
        _ => Err(arguments.bad("the last of `messages` must have the role \"user\"")),
    }
}

fn check_options(arguments: &Arguments, request: &Request) -> Result<(), CallError> {
    arguments.text(
        "system",
        request.system.as_deref().unwrap_or_default(),
        0,
        SYSTEM_BYTES_MAX,
    )?;
    if let Some(model) = &request.model {
        arguments.text("model", model, 1, MODEL_BYTES_MAX)?;
    }
    arguments.number("maxTokens", request.max_tokens, 1, TOKENS_MAX)?;
    arguments.number("temperature", request.temperature, 0.0, 2.0)?;
    let stop = request.stop.as_deref().unwrap_or_default();
    arguments.count("stop", stop.len(), 0, STOPS_MAX)?;
    stop.iter()
        .try_for_each(|text| arguments.text("stop", text, 1, STOP_BYTES_MAX))
}

pub(super) fn value(
    completion: platform::Completion,
    reading: &Reading,
) -> Result<Value, CallError> {
    let stopped = match completion.stopped() {
        Stopped::OutputTokens => "output_tokens",
        Stopped::StopSequence => "stop_sequence",
        Stopped::Refused => "refused",
        Stopped::End | Stopped::Unspecified => "end",
    };
    let data = match reading {
        Reading::Json => Some(serde_json::from_str::<Value>(&completion.text).map_err(
            |error| {
                failed(format!(
                    "the model's answer is no JSON, which `schema` asks for: {error}"
                ))
            },
        )?),
        _ => None,
    };
    Ok(object([
        ("text", Some(completion.text.into())),
        ("data", data),
        ("model", Some(completion.model.into())),
        ("stopped", Some(stopped.into())),
        ("inputTokens", Some(completion.input_tokens.into())),
        ("outputTokens", Some(completion.output_tokens.into())),
    ]))
}
