//! Replies that an author wrote down, instead of the real ones: for `bulkhead plugin run` and `test` alone.
//!
//! A call is checked as the real one would be: its permission, its arguments, and for `host.fetch` whether the host is
//! declared. What would go out then does not; the reply comes from the list. Secrets and their hiding are the real ones.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bulkhead_wire::{
    methods::{self, Where},
    pipe,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{FETCH, HostFunctions};
use crate::{
    call_error::{CallError, Code},
    context::InvocationContext,
    host_calls::HostCalls,
};

/// `host.settings.getSecret`: the platform has the secrets.
const GET_SECRET: u32 = 3;

/// One reply, to the first call that fits.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Reply {
    /// The function without `host.`, such as `session.post` or `fetch`.
    pub call: String,
    /// What the arguments must have in them; any arguments where it is left out.
    pub arguments: Option<Vec<Value>>,
    pub answer: Option<Value>,
    pub error: Option<ReplyError>,
    /// To every such call, not only to one.
    #[serde(default)]
    pub always: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyError {
    pub code: String,
    pub message: String,
}

/// A call that a plugin made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Made {
    pub call: String,
    pub arguments: Value,
}

/// What `host.fetch` does where no reply fits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Network {
    /// The real network, by the real decision.
    #[default]
    Real,
    /// Nothing is sent.
    None,
}

/// The replies of one invocation, and what it asked.
#[derive(Debug, Default)]
struct Script {
    replies: Vec<Reply>,
    network: Network,
    made: Vec<Made>,
}

/// All functions of `host`, with replies by the invocation's name where there are some.
pub struct Rehearsal {
    functions: HostFunctions,
    scripts: Mutex<HashMap<String, Script>>,
}

impl Rehearsal {
    pub fn new(functions: HostFunctions) -> Self {
        Self {
            functions,
            scripts: Mutex::default(),
        }
    }

    /// Before the invocation of this name begins.
    pub fn prepare(&self, invocation: &str, replies: Vec<Reply>, network: Network) {
        let script = Script {
            replies,
            network,
            made: Vec::new(),
        };
        self.scripts().insert(invocation.to_owned(), script);
    }

    /// What the invocation asked, once it is over. Its replies are forgotten.
    pub fn finish(&self, invocation: &str) -> Vec<Made> {
        let script = self.scripts().remove(invocation);
        script.map(|script| script.made).unwrap_or_default()
    }

    fn scripts(&self) -> MutexGuard<'_, HashMap<String, Script>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reply that is written for a call; none where the real function is to be asked.
    fn written(&self, invocation: &str, call: &pipe::Call) -> Option<Result<Value, CallError>> {
        let method =
            methods::by_number(call.method).filter(|method| method.carried_out != Where::Inside)?;
        let arguments: Value = serde_json::from_str(&call.arguments_json).unwrap_or_default();
        let mut scripts = self.scripts();
        let script = scripts.get_mut(invocation)?;
        script.made.push(Made {
            call: method.path.to_owned(),
            arguments: arguments.clone(),
        });
        let fits = |reply: &Reply| {
            let wanted = reply.arguments.as_deref().unwrap_or_default();
            let given = arguments.as_array().map(Vec::as_slice).unwrap_or_default();
            reply.call == method.path
                && wanted.len() <= given.len()
                && wanted
                    .iter()
                    .zip(given)
                    .all(|(wanted, given)| contains(given, wanted))
        };
        if let Some(index) = script.replies.iter().position(fits) {
            let reply = match script.replies[index].always {
                true => script.replies[index].clone(),
                false => script.replies.remove(index),
            };
            return Some(reply.outcome());
        }
        let is_real = match method.number {
            GET_SECRET => true,
            FETCH => script.network == Network::Real,
            _ => false,
        };
        (!is_real).then(|| {
            let message = format!("host.{}: no reply is written for this call", method.path);
            Err(CallError::new(Code::Unavailable, message))
        })
    }
}

impl Reply {
    fn outcome(self) -> Result<Value, CallError> {
        match (self.answer, self.error) {
            (_, Some(error)) => Err(CallError::new(code(&error.code), error.message)),
            (answer, None) => Ok(answer.unwrap_or_default()),
        }
    }
}

fn code(name: &str) -> Code {
    use Code::{BadRequest, Denied, Failed, Limit, NotFound, Timeout, Unavailable};
    let all = [
        BadRequest,
        Denied,
        Limit,
        NotFound,
        Timeout,
        Unavailable,
        Failed,
    ];
    all.into_iter()
        .find(|code| code.name() == name)
        .unwrap_or(Failed)
}

/// Whether `wanted` is in `given`: objects may have more fields, everything else is the same.
pub fn contains(given: &Value, wanted: &Value) -> bool {
    match (given, wanted) {
        (Value::Object(given), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| given.get(name).is_some_and(|given| contains(given, wanted))),
        (Value::Array(given), Value::Array(wanted)) => {
            given.len() == wanted.len()
                && given
                    .iter()
                    .zip(wanted)
                    .all(|(given, wanted)| contains(given, wanted))
        }
        (given, wanted) => given == wanted,
    }
}

/// A response of `host.fetch` from the little that an author wrote of it.
fn response(url: &str, written: &Value) -> (Value, String) {
    let mut response = json!({
        "status": 200, "statusText": "", "url": url, "redirected": false, "headers": {}, "setCookie": [], "bodyEncoding": "utf8",
    });
    let fields = written.as_object().cloned().unwrap_or_default();
    let body = match fields.get("body") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(json) => json.to_string(),
    };
    if let Some(response) = response.as_object_mut() {
        response.extend(
            fields
                .into_iter()
                .filter(|(name, _)| name != "body")
                .collect::<Map<_, _>>(),
        );
        let status = response
            .get("status")
            .and_then(Value::as_u64)
            .unwrap_or_default();
        response
            .entry("ok")
            .or_insert((200..300).contains(&status).into());
    }
    (response, body)
}

#[async_trait]
impl HostCalls for Rehearsal {
    async fn call(&self, invocation: &InvocationContext, call: pipe::Call) -> pipe::Answer {
        let name = &invocation.authority().invocation;
        if !self.scripts().contains_key(name) {
            return self.functions.call(invocation, call).await;
        }
        let outcome = match self.functions.check(invocation, &call) {
            Err(error) => Err(error),
            Ok(url) => match self.written(name, &call) {
                None => return self.functions.call(invocation, call).await,
                Some(Err(error)) => Err(error),
                Some(Ok(answer)) => Ok(value(call.method, &url, &answer)),
            },
        };
        let outcome = match outcome {
            Ok(value) => pipe::answer::Outcome::Value(value),
            Err(error) => pipe::answer::Outcome::Error(error.into()),
        };
        pipe::Answer {
            id: call.id,
            outcome: Some(outcome),
        }
    }
}

fn value(method: u32, url: &str, answer: &Value) -> pipe::Value {
    if method != FETCH {
        return super::plain(answer);
    }
    let (response, body) = response(url, answer);
    pipe::Value {
        json: response.to_string(),
        body: Some(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p12_what_is_wanted_may_be_a_part() {
        let given = json!([{"a": 1, "b": [1, {"c": 2, "d": 3}]}]);
        for wanted in [
            json!([{}]),
            json!([{"a": 1}]),
            json!([{"b": [1, {"c": 2}]}]),
            given.clone(),
        ] {
            assert!(contains(&given, &wanted), "{wanted}");
        }
        for wanted in [
            json!([]),
            json!([{"a": 2}]),
            json!([{"b": [1]}]),
            json!([{"x": null}]),
            json!({}),
        ] {
            assert!(!contains(&given, &wanted), "{wanted}");
        }
    }

    #[test]
    fn p12_a_written_response_has_what_a_real_one_has() {
        let (whole, body) = response(
            "https://a.example/",
            &json!({"status": 404, "body": {"a": 1}}),
        );
        assert_eq!(
            (&whole["ok"], &whole["url"], body.as_str()),
            (&json!(false), &json!("https://a.example/"), r#"{"a":1}"#)
        );
        assert_eq!(response("u", &json!({"body": "text"})).1, "text");
        assert_eq!(response("u", &Value::Null).0["ok"], true);
    }
}
