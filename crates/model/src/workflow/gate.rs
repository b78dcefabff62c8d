//! The `gate` of a phase: a word, or a mapping that says more.

use url::Url;

use super::{
    node::Value,
    reader::{Field, Reader},
};
use crate::gate::{GatePolicy, Notifier, OnExpiry, OnSuccess};

pub(crate) const FIELDS: &[&str] = &["onSuccess", "approvers", "expires", "onExpiry", "notify"];
pub(crate) const NOTIFY_FIELDS: &[&str] = &["webhook", "command"];

const ON_SUCCESS: [(&str, OnSuccess); 2] =
    [("review", OnSuccess::Review), ("none", OnSuccess::GoOn)];

pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<GatePolicy> {
    match &field.node.value {
        Value::Text(_) => Some(GatePolicy {
            on_success: reader.choice(field, "gate", &ON_SUCCESS)?,
            ..GatePolicy::default()
        }),
        Value::Map(_) => read_mapping(reader, field),
        _ => {
            reader.expected(field, "`review`, `none` or a mapping");
            None
        }
    }
}

fn read_mapping(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<GatePolicy> {
    let fields = reader.fields(field, FIELDS)?;
    let mut gate = GatePolicy::default();
    if let Some(field) = fields.get("onSuccess") {
        gate.on_success = reader.choice(&field, "gate", &ON_SUCCESS)?;
    }
    if let Some(field) = fields.get("approvers") {
        gate.approvers = approvers(reader, &field);
    }
    let expires = fields.get("expires");
    if let Some(field) = &expires {
        gate.expires_after_ms = reader.duration(field, 60_000..=super::units::DURATION_MS_MAX);
    }
    if let Some(field) = fields.get("onExpiry") {
        reader.choice(&field, "value", &[("reject", OnExpiry::Reject)]);
        if expires.is_none() {
            reader.problem(&field, "it needs `expires` beside it");
        }
    }
    if let Some(field) = fields.get("notify") {
        let items = reader.list(&field);
        let notify = items.iter().filter_map(|item| notifier(reader, item));
        gate.notify = notify.collect();
    }
    Some(gate)
}

/// An empty list would read as "nobody" and mean "anybody": it is refused.
fn approvers(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<String> {
    let items = reader.list(field);
    if items.is_empty() && matches!(field.node.value, Value::List(_)) {
        let remedy = "leave the field out where anyone with the scope `decide` may answer";
        reader.problem(field, format!("expected at least one name; {remedy}"));
    }
    items.iter().filter_map(|item| reader.line(item)).collect()
}

fn notifier(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Notifier> {
    let fields = reader.fields(field, NOTIFY_FIELDS)?;
    match (fields.get("webhook"), fields.get("command")) {
        (Some(webhook), None) => webhook_url(reader, &webhook).map(Notifier::Webhook),
        (None, Some(command)) => {
            let name = reader.line(&command)?;
            let known = reader.known.notifiers.as_deref();
            reader.offered(&command, "notifier", &name, known);
            Some(Notifier::Command(name))
        }
        _ => {
            reader.problem(field, "expected either `webhook` or `command`");
            None
        }
    }
}

fn webhook_url(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let text = reader.line(field)?;
    let url = Url::parse(&text).ok().filter(|url| {
        let http = matches!(url.scheme(), "http" | "https");
        let plain = url.username().is_empty() && url.password().is_none();
        http && plain && url.host().is_some()
    });
    if url.is_none() {
        reader.expected(field, "an http or https URL without a user name in it");
    }
    url.map(String::from)
}
