//! `host.session.todos` and `host.session.timers`: what a chat has to remember.

use bulkhead_wire::platform::{self, call::Call as Asked, session_timers_set::First};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Arguments, Question, object};
use crate::call_error::CallError;

const TODOS_MAX: usize = 200;
const TODO_BYTES_MAX: usize = 2 << 10;
const NAME_BYTES_MAX: usize = 128;
const DATA_BYTES_MAX: usize = 16 << 10;
const YEAR_MS: u64 = 366 * 24 * 3_600_000;
/// The last millisecond that a JavaScript Date can be.
const AT_MS_MAX: i64 = 8_640_000_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Todo {
    id: Option<String>,
    text: String,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    #[default]
    Pending,
    InProgress,
    Completed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Timer {
    name: String,
    at_ms: Option<i64>,
    after_ms: Option<u64>,
    every_ms: Option<u64>,
    data: Option<Value>,
}

pub(super) fn list(mut arguments: Arguments) -> Result<Question, CallError> {
    arguments.end()?;
    Ok(Asked::SessionTodosList(platform::SessionTodosList {}).into())
}

pub(super) fn set(mut arguments: Arguments) -> Result<Question, CallError> {
    let todos: Vec<Todo> = arguments.take("todos")?;
    arguments.end()?;
    arguments.count("todos", todos.len(), 0, TODOS_MAX)?;
    for (index, todo) in todos.iter().enumerate() {
        arguments.text(
            &format!("todos[{index}].text"),
            &todo.text,
            1,
            TODO_BYTES_MAX,
        )?;
        if let Some(id) = &todo.id {
            arguments.id(&format!("todos[{index}].id"), id)?;
        }
    }
    let todos = todos.into_iter().map(|todo| {
        let status = match todo.status {
            Status::Pending => platform::TodoStatus::Pending,
            Status::InProgress => platform::TodoStatus::InProgress,
            Status::Completed => platform::TodoStatus::Completed,
        };
        platform::TodoToSet {
            id: todo.id,
            text: todo.text,
            status: status.into(),
        }
    });
    let todos = todos.collect();
    Ok(Asked::SessionTodosSet(platform::SessionTodosSet { todos }).into())
}

pub(super) fn timers(mut arguments: Arguments) -> Result<Question, CallError> {
    arguments.end()?;
    Ok(Asked::SessionTimersList(platform::SessionTimersList {}).into())
}

pub(super) fn set_timer(mut arguments: Arguments) -> Result<Question, CallError> {
    let timer: Timer = arguments.take("timer")?;
    arguments.end()?;
    arguments.text("name", &timer.name, 1, NAME_BYTES_MAX)?;
    let at_ms = arguments.number("atMs", timer.at_ms, 0, AT_MS_MAX)?;
    let after_ms = arguments.number("afterMs", timer.after_ms, 1_000, YEAR_MS)?;
    let every_ms = arguments.number("everyMs", timer.every_ms, 60_000, YEAR_MS)?;
    let first = match (at_ms, after_ms) {
        (Some(at_ms), None) => First::AtMs(at_ms),
        (None, Some(after_ms)) => First::AfterMs(after_ms),
        _ => return Err(arguments.bad("expected either `atMs` or `afterMs`")),
    };
    let data_json = timer.data.map(|data| data.to_string());
    arguments.text(
        "data",
        data_json.as_deref().unwrap_or_default(),
        0,
        DATA_BYTES_MAX,
    )?;
    let asked = platform::SessionTimersSet {
        name: timer.name,
        first: Some(first),
        every_ms,
        data_json,
    };
    Ok(Asked::SessionTimersSet(asked).into())
}

pub(super) fn cancel_timer(mut arguments: Arguments) -> Result<Question, CallError> {
    let name: String = arguments.take("name")?;
    arguments.end()?;
    arguments.text("name", &name, 1, NAME_BYTES_MAX)?;
    Ok(Asked::SessionTimersCancel(platform::SessionTimersCancel { name }).into())
}

pub(super) fn value(todos: platform::Todos) -> Value {
    let todos = todos.todos.into_iter().map(|todo| {
        let status = match todo.status() {
            platform::TodoStatus::InProgress => "in_progress",
            platform::TodoStatus::Completed => "completed",
            platform::TodoStatus::Pending | platform::TodoStatus::Unspecified => "pending",
        };
        json!({ "id": todo.id, "text": todo.text, "status": status })
    });
    todos.collect()
}

pub(super) fn timers_value(timers: platform::Timers) -> Value {
    timers.timers.into_iter().map(timer_value).collect()
}

/// Data that is no JSON any more is left out: it is the platform's fault, and the timer is there all the same.
pub(super) fn timer_value(timer: platform::Timer) -> Value {
    let data = timer
        .data_json
        .and_then(|json| serde_json::from_str::<Value>(&json).ok());
    object([
        ("name", Some(timer.name.into())),
        ("atMs", Some(timer.at_ms.into())),
        ("everyMs", timer.every_ms.map(Value::from)),
        ("data", data),
    ])
}
