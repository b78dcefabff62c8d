//! One case of `bulkhead plugin test`: a file with what is called, what answers, and what is expected.

use std::collections::BTreeMap;

use bulkhead_isolates::calls::rehearsal::{Made, Network, Reply, contains};
use bulkhead_wire::isolates::{Fault, Log, result::Outcome};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{invoke::Ended, local_platform::level, words};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Case {
    /// For people.
    pub(super) name: Option<String>,
    /// The handler, by the way from the module's exports.
    pub(super) entry: String,
    /// Its argument; an empty object where it is left out.
    #[serde(default = "empty")]
    pub(super) input: Value,
    #[serde(default)]
    pub(super) settings: Map<String, Value>,
    /// Values for the test alone: real secrets have no place in a file of the plugin.
    #[serde(default)]
    pub(super) secrets: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) replies: Vec<Reply>,
    /// Whether `host.fetch` goes out where no reply fits.
    #[serde(default)]
    pub(super) network: bool,
    pub(super) expect: Expect,
}

fn empty() -> Value {
    Value::Object(Map::new())
}

/// Everything that is given must hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Expect {
    /// The whole result.
    value: Option<Value>,
    /// A part of the result: objects may have more fields.
    contains: Option<Value>,
    fault: Option<ExpectedFault>,
    /// Each is in some line of the log, in this order. A level may stand before it: `warn: …`.
    #[serde(default)]
    logs: Vec<String>,
    /// Calls of `host` that were made, in this order, perhaps with others between.
    #[serde(default)]
    calls: Vec<ExpectedCall>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExpectedFault {
    /// `timeout`, `memory_limit`, `bad_request` or `crash`.
    class: Option<String>,
    reason: Option<String>,
    /// A part of it.
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExpectedCall {
    call: String,
    arguments: Option<Vec<Value>>,
}

impl Case {
    pub(super) const fn network(&self) -> Network {
        match self.network {
            true => Network::Real,
            false => Network::None,
        }
    }
}

impl Expect {
    /// What does not hold.
    pub(super) fn differences(&self, ended: &Ended) -> Vec<String> {
        let mut differences = self.outcome(ended.result.outcome.as_ref());
        differences.extend(self.logs(&ended.logs));
        differences.extend(self.calls(&ended.made));
        differences
    }

    fn outcome(&self, outcome: Option<&Outcome>) -> Vec<String> {
        match (outcome, &self.fault) {
            (Some(Outcome::ValueJson(text)), None) => {
                self.value(&serde_json::from_str(text).unwrap_or_default())
            }
            (Some(Outcome::ValueJson(text)), Some(_)) => {
                vec![format!("expected a fault, and it gave {text}")]
            }
            (Some(Outcome::Fault(fault)), Some(expected)) => expected.differences(fault),
            (Some(Outcome::Fault(fault)), None) => vec![words::fault(fault)],
            (Some(Outcome::NotRun(not_run)), _) => vec![words::not_run(not_run)],
            (None, _) => vec!["the service gave no outcome".to_owned()],
        }
    }

    fn value(&self, value: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        if let Some(expected) = &self.value
            && expected != value
        {
            differences.push(format!(
                "expected the result\n{expected:#}\nand it gave\n{value:#}"
            ));
        }
        if let Some(expected) = &self.contains
            && !contains(value, expected)
        {
            differences.push(format!(
                "expected a result with\n{expected:#}\nand it gave\n{value:#}"
            ));
        }
        differences
    }

    fn logs(&self, logs: &[Log]) -> Vec<String> {
        let lines: Vec<_> = logs
            .iter()
            .map(|line| format!("{}: {}", level(line), line.text))
            .collect();
        let mut left = lines.iter();
        let missing = self
            .logs
            .iter()
            .filter(|wanted| !left.any(|line| line.contains(wanted.as_str())));
        let missing = missing
            .map(|wanted| format!("no line of the log has {wanted:?}; the log is {lines:#?}"));
        missing.take(1).collect()
    }

    fn calls(&self, made: &[Made]) -> Vec<String> {
        let mut left = made.iter();
        let is_there = |wanted: &&ExpectedCall| {
            let arguments = wanted.arguments.as_deref().unwrap_or_default();
            let mut fits = |made: &Made| {
                let given = made
                    .arguments
                    .as_array()
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                made.call == wanted.call
                    && arguments.len() <= given.len()
                    && arguments
                        .iter()
                        .zip(given)
                        .all(|(wanted, given)| contains(given, wanted))
            };
            !left.any(&mut fits)
        };
        let missing: Vec<_> = self.calls.iter().filter(is_there).take(1).collect();
        let made: Vec<_> = made
            .iter()
            .map(|made| format!("{}{}", made.call, made.arguments))
            .collect();
        let missing = missing.iter().map(|wanted| {
            let arguments = wanted
                .arguments
                .clone()
                .map(Value::from)
                .unwrap_or_default();
            format!(
                "expected the call {} with {arguments}; the calls were {made:#?}",
                wanted.call
            )
        });
        missing.collect()
    }
}

impl ExpectedFault {
    fn differences(&self, fault: &Fault) -> Vec<String> {
        let class = words::class(fault.class()).replace(' ', "_");
        let is_same = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        let has_message = self
            .message
            .as_ref()
            .is_none_or(|wanted| fault.message.contains(wanted));
        if is_same(&self.class, &class)
            && is_same(&self.reason, &words::reason(fault))
            && has_message
        {
            return Vec::new();
        }
        vec![format!(
            "expected another fault than\n{}",
            words::fault(fault)
        )]
    }
}
