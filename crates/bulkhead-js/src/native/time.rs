//! Timers, the clock and the log.

use std::{rc::Rc, time::Duration};

use bulkhead_engine::{Function, Thrown, Value, later, now};
use tokio::sync::oneshot;

use super::{Native, arguments::Arguments};

pub(super) fn functions(native: &Rc<Native>) -> Vec<(&'static str, Function)> {
    let (start, stop, clock) = (Rc::clone(native), Rc::clone(native), Rc::clone(native));
    let (log, report) = (Rc::clone(native), Rc::clone(native));
    vec![
        (
            "timerStart",
            later(move |values| timer_start(Rc::clone(&start), values)),
        ),
        ("timerStop", now(move |values| timer_stop(&stop, values))),
        (
            "now",
            now(move |_| {
                Ok(Value::Number(
                    clock.started.elapsed().as_secs_f64() * 1000.0,
                ))
            }),
        ),
        (
            "log",
            now(move |values| {
                let mut arguments = Arguments::new(values);
                let (level, text) = (arguments.text()?, arguments.text()?);
                match level.as_str() {
                    "info" => log.log.say(&text),
                    level => log.log.say(&format!("[{level}] {text}")),
                }
                Ok(Value::Undefined)
            }),
        ),
        (
            "report",
            now(move |values| {
                let text = Arguments::new(values).text()?;
                report.log.say(&format!("[error] nobody caught: {text}"));
                Ok(Value::Undefined)
            }),
        ),
    ]
}

/// True when the time is over, false where the timer was stopped.
async fn timer_start(native: Rc<Native>, values: Vec<Value>) -> Result<Value, Thrown> {
    let mut arguments = Arguments::new(values);
    let (id, ms) = (arguments.u32()?, arguments.number()?);
    let limit = Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default();
    let (stop, stopped) = oneshot::channel();
    native.timers.borrow_mut().insert(id, stop);
    let fired = tokio::time::timeout(limit, stopped).await.is_err();
    if fired {
        native.timers.borrow_mut().remove(&id);
    }
    Ok(Value::Bool(fired))
}

fn timer_stop(native: &Native, values: Vec<Value>) -> Result<Value, Thrown> {
    let id = Arguments::new(values).u32()?;
    // Dropping the sender is the news.
    native.timers.borrow_mut().remove(&id);
    Ok(Value::Undefined)
}
