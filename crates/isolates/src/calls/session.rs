//! `host.session`: the chat itself.

use bulkhead_wire::platform::{self, call::Call as Asked};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Arguments, Question, object};
use crate::call_error::CallError;

const MESSAGES: u32 = 50;
const MESSAGES_MAX: u32 = 200;
const TEXT_BYTES_MAX: usize = 64 << 10;
const ATTACHMENTS_MAX: usize = 10;
const ERROR_BYTES_MAX: usize = 2 << 10;
const DETAIL_BYTES_MAX: usize = 16 << 10;
pub(super) const TOKEN_BYTES_MAX: usize = 512;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Messages {
    limit: Option<u32>,
    before: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Post {
    text: Option<String>,
    attachments: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SendError {
    message: String,
    detail: Option<String>,
}

pub(super) fn info(mut arguments: Arguments) -> Result<Question, CallError> {
    arguments.end()?;
    Ok(Asked::SessionInfo(platform::SessionInfo {}).into())
}

pub(super) fn messages(mut arguments: Arguments) -> Result<Question, CallError> {
    let Messages { limit, before } = arguments.take_or_default("options")?;
    arguments.end()?;
    let limit = arguments.number("limit", limit, 1, MESSAGES_MAX)?;
    if let Some(before) = &before {
        arguments.id("before", before)?;
    }
    let limit = limit.unwrap_or(MESSAGES);
    Ok(Asked::SessionMessages(platform::SessionMessages { limit, before }).into())
}

pub(super) fn post(mut arguments: Arguments) -> Result<Question, CallError> {
    let Post { text, attachments } = arguments.take_text_or_object("text")?;
    arguments.end()?;
    let (text, attachments) = (text.unwrap_or_default(), attachments.unwrap_or_default());
    let least = usize::from(attachments.is_empty());
    arguments.text("text", &text, least, TEXT_BYTES_MAX)?;
    arguments.count("attachments", attachments.len(), 0, ATTACHMENTS_MAX)?;
    for token in &attachments {
        arguments.text("attachments", token, 1, TOKEN_BYTES_MAX)?;
    }
    Ok(Asked::SessionPost(platform::SessionPost { text, attachments }).into())
}

pub(super) fn send_error(mut arguments: Arguments) -> Result<Question, CallError> {
    let SendError { message, detail } = arguments.take_text_or_object("message")?;
    arguments.end()?;
    arguments.text("message", &message, 1, ERROR_BYTES_MAX)?;
    arguments.text(
        "detail",
        detail.as_deref().unwrap_or_default(),
        0,
        DETAIL_BYTES_MAX,
    )?;
    Ok(Asked::SessionSendError(platform::SessionSendError { message, detail }).into())
}

pub(super) fn info_value(session: platform::Session) -> Value {
    object([
        ("id", Some(session.id.into())),
        ("agentId", Some(session.agent_id.into())),
        ("title", session.title.map(Value::from)),
        ("channel", Some(session.channel.into())),
        ("locale", session.locale.map(Value::from)),
        ("timeZone", session.time_zone.map(Value::from)),
    ])
}

pub(super) fn messages_value(messages: platform::Messages) -> Value {
    let more = messages.more;
    let messages: Vec<_> = messages.messages.into_iter().map(message_value).collect();
    json!({ "messages": messages, "more": more })
}

fn message_value(message: platform::ChatMessage) -> Value {
    let role = match message.role() {
        platform::Role::Assistant => "assistant",
        platform::Role::System => "system",
        platform::Role::Tool => "tool",
        platform::Role::User | platform::Role::Unspecified => "user",
    };
    let attachments = message.attachments.into_iter().map(|attachment| {
        json!({
            "name": attachment.name,
            "mediaType": attachment.media_type,
            "sizeBytes": attachment.size_bytes,
            "token": attachment.token,
        })
    });
    object([
        ("id", Some(message.id.into())),
        ("role", Some(role.into())),
        ("author", message.author.map(Value::from)),
        ("text", Some(message.text.into())),
        ("createdAtMs", Some(message.created_at_ms.into())),
        ("attachments", Some(attachments.collect())),
    ])
}

pub(super) fn posted_value(posted: &platform::Posted) -> Value {
    json!({ "id": posted.id })
}
