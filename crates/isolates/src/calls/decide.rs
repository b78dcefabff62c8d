//! `host.decide` (P24): the account's model decides, within what was asked. An answer outside it is an error.

use bulkhead_wire::platform::{self, call::Call as Asked, noul::Verdict};
use serde::Deserialize;
use serde_json::Value;

use super::{Arguments, Question, Reading, failed, object};
use crate::call_error::CallError;

const QUESTION_BYTES_MAX: usize = 16 << 10;
const CONTEXT_BYTES_MAX: usize = 256 << 10;
const OPTIONS_MAX: usize = 100;
const OPTION_BYTES_MAX: usize = 1 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Noul {
    question: String,
    context: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choose {
    question: String,
    context: Option<String>,
    options: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Score {
    question: String,
    context: Option<String>,
    min: f64,
    max: f64,
}

fn check(arguments: &Arguments, question: &str, context: Option<&String>) -> Result<(), CallError> {
    arguments.text("question", question, 1, QUESTION_BYTES_MAX)?;
    let context = context.map(String::as_str).unwrap_or_default();
    arguments.text("context", context, 0, CONTEXT_BYTES_MAX)
}

pub(super) fn noul(mut arguments: Arguments) -> Result<Question, CallError> {
    let Noul { question, context } = arguments.take_text_or_object("question")?;
    arguments.end()?;
    check(&arguments, &question, context.as_ref())?;
    Ok(Asked::DecideNoul(platform::DecideNoul { question, context }).into())
}

pub(super) fn choose(mut arguments: Arguments) -> Result<Question, CallError> {
    let Choose {
        question,
        context,
        options,
    } = arguments.take("request")?;
    arguments.end()?;
    check(&arguments, &question, context.as_ref())?;
    arguments.count("options", options.len(), 2, OPTIONS_MAX)?;
    for (index, option) in options.iter().enumerate() {
        arguments.text(&format!("options[{index}]"), option, 1, OPTION_BYTES_MAX)?;
        if options[..index].contains(option) {
            return Err(arguments.bad(format_args!("`options[{index}]` is there twice")));
        }
    }
    let asked = platform::DecideChoose {
        question,
        context,
        options: options.clone(),
    };
    Ok(Question::reading(
        Asked::DecideChoose(asked),
        Reading::Options(options),
    ))
}

pub(super) fn score(mut arguments: Arguments) -> Result<Question, CallError> {
    let Score {
        question,
        context,
        min,
        max,
    } = arguments.take("request")?;
    arguments.end()?;
    check(&arguments, &question, context.as_ref())?;
    if !(min.is_finite() && max.is_finite() && min < max) {
        return Err(arguments.bad("`min` must be less than `max`, and both finite"));
    }
    let asked = platform::DecideScore {
        question,
        context,
        min,
        max,
    };
    Ok(Question::reading(
        Asked::DecideScore(asked),
        Reading::Range { min, max },
    ))
}

pub(super) fn noul_value(noul: platform::Noul) -> Result<Value, CallError> {
    let answer = match noul.verdict() {
        Verdict::Yes => "yes",
        Verdict::No => "no",
        Verdict::Unknown => "unknown",
        Verdict::Unspecified => return Err(failed("the model gave no answer of the three")),
    };
    Ok(object([
        ("answer", Some(answer.into())),
        ("reason", noul.reason.map(Value::from)),
    ]))
}

pub(super) fn chosen_value(chosen: platform::Chosen, reading: Reading) -> Result<Value, CallError> {
    let index = chosen.index;
    let option = match reading {
        Reading::Options(options) => options.into_iter().nth(index as usize),
        _ => None,
    };
    let Some(option) = option else {
        return Err(failed("the model's answer is none of the options"));
    };
    Ok(object([
        ("answer", Some(option.into())),
        ("index", Some(index.into())),
        ("reason", chosen.reason.map(Value::from)),
    ]))
}

pub(super) fn score_value(score: platform::Score, reading: &Reading) -> Result<Value, CallError> {
    match reading {
        Reading::Range { min, max } if (*min..=*max).contains(&score.score) => Ok(object([
            ("score", Some(score.score.into())),
            ("reason", score.reason.map(Value::from)),
        ])),
        _ => Err(failed("the model's score is outside the range")),
    }
}
