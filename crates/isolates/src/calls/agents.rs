//! `host.agents` and `host.models`: what else the account has.

use bulkhead_wire::platform::{self, call::Call as Asked};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Arguments, Question, object};
use crate::call_error::CallError;

const TEXT_BYTES_MAX: usize = 64 << 10;
const TIMEOUT_MS: u64 = 25_000;
const TIMEOUT_MS_MAX: u64 = 120_000;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AskOptions {
    timeout_ms: Option<u64>,
}

pub(super) fn list(mut arguments: Arguments) -> Result<Question, CallError> {
    arguments.end()?;
    Ok(Asked::AgentsList(platform::AgentsList {}).into())
}

pub(super) fn ask(mut arguments: Arguments) -> Result<Question, CallError> {
    let (agent_id, text) = (
        arguments.take::<String>("id")?,
        arguments.take::<String>("text")?,
    );
    let AskOptions { timeout_ms } = arguments.take_or_default("options")?;
    arguments.end()?;
    check(&arguments, &agent_id, &text)?;
    let timeout_ms = arguments.number("timeoutMs", timeout_ms, 1_000, TIMEOUT_MS_MAX)?;
    let asked = platform::AgentsAsk {
        agent_id,
        text,
        timeout_ms: timeout_ms.unwrap_or(TIMEOUT_MS),
    };
    Ok(Asked::AgentsAsk(asked).into())
}

pub(super) fn send(mut arguments: Arguments) -> Result<Question, CallError> {
    let (agent_id, text) = (
        arguments.take::<String>("id")?,
        arguments.take::<String>("text")?,
    );
    arguments.end()?;
    check(&arguments, &agent_id, &text)?;
    Ok(Asked::AgentsSend(platform::AgentsSend { agent_id, text }).into())
}

fn check(arguments: &Arguments, agent_id: &str, text: &str) -> Result<(), CallError> {
    arguments.id("id", agent_id)?;
    arguments.text("text", text, 1, TEXT_BYTES_MAX)
}

pub(super) fn models(mut arguments: Arguments) -> Result<Question, CallError> {
    arguments.end()?;
    Ok(Asked::ModelsList(platform::ModelsList {}).into())
}

pub(super) fn value(agents: platform::Agents) -> Value {
    let agents = agents.agents.into_iter().map(|agent| {
        object([
            ("id", Some(agent.id.into())),
            ("name", Some(agent.name.into())),
            ("description", agent.description.map(Value::from)),
        ])
    });
    agents.collect()
}

pub(super) fn answer_value(answer: &platform::AgentAnswer) -> Value {
    json!({ "text": answer.text, "sessionId": answer.session_id })
}

pub(super) fn models_value(models: platform::Models) -> Value {
    let models = models.models.into_iter().map(|model| {
        object([
            ("id", Some(model.id.into())),
            ("name", Some(model.name.into())),
            ("provider", Some(model.provider.into())),
            ("contextTokens", model.context_tokens.map(Value::from)),
            ("outputTokensMax", model.output_tokens_max.map(Value::from)),
            ("readsImages", Some(model.reads_images.into())),
            ("callsTools", Some(model.calls_tools.into())),
            ("isDefault", Some(model.is_default.into())),
        ])
    });
    models.collect()
}
