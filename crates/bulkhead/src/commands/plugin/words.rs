//! How an invocation ended, in words and as JSON.

use bulkhead_model::plugin::InvocationLimits;
use bulkhead_wire::isolates::{
    self, Fault, Log, NotRun, Position, Usage, Warning, fault::Class, result::Outcome,
};
use serde_json::{Value, json};

use super::local_platform::level;

pub(super) const fn class(class: Class) -> &'static str {
    match class {
        Class::Timeout => "timeout",
        Class::MemoryLimit => "memory limit",
        Class::BadRequest => "bad request",
        Class::Crash | Class::Unspecified => "crash",
    }
}

/// `WALL_CLOCK` is `wall_clock`.
pub(super) fn reason(fault: &Fault) -> String {
    fault.reason().as_str_name().to_lowercase()
}

fn place(position: &Position) -> String {
    let Position {
        file, line, column, ..
    } = position;
    format!("{file}:{line}:{column}")
}

/// The fault, with where it happened in the author's own file.
pub(super) fn fault(fault: &Fault) -> String {
    let load = if fault.at_load {
        ", while the module was loading"
    } else {
        ""
    };
    let mut words = format!(
        "{} ({}{load}): {}",
        class(fault.class()),
        reason(fault),
        fault.message
    );
    for position in &fault.stack {
        let function = match position.function.as_str() {
            "" => "(top level)",
            function => function,
        };
        words.push_str(&format!("\n    at {function} ({})", place(position)));
    }
    if let Some(evidence) = &fault.evidence {
        if !evidence.limit.is_empty() {
            words.push_str(&format!(
                "\n    {}: {} of {}",
                evidence.limit, evidence.used, evidence.allowed
            ));
        }
        if !evidence.denied_hosts.is_empty() {
            words.push_str(&format!(
                "\n    hosts that were refused: {}",
                evidence.denied_hosts.join(", ")
            ));
        }
    }
    words
}

pub(super) fn not_run(not_run: &NotRun) -> String {
    let reason = not_run.reason().as_str_name().to_lowercase();
    format!("not run ({reason}): {}", not_run.message)
}

/// What was used, with the limits beside it.
pub(super) fn usage(usage: &Usage, limits: &InvocationLimits) -> Vec<[String; 3]> {
    let mib = |bytes: u64| format!("{:.1} MiB", lossy(bytes) / f64::from(1 << 20));
    let row = |name: &str, used: String, limit: String| [name.to_owned(), used, limit];
    let wall = usage.wall_ms.saturating_sub(usage.queued_ms);
    let mut rows = vec![
        row(
            "time",
            format!("{wall} ms"),
            format!("{} ms", limits.wall.as_millis()),
        ),
        row(
            "of the processor",
            format!("{:.1} ms", lossy(usage.cpu_us) / 1_000.0),
            String::new(),
        ),
        row(
            "JavaScript heap",
            mib(usage.heap_bytes),
            mib(limits.memory.limit_bytes()),
        ),
        row(
            "result",
            format!("{} bytes", usage.result_bytes),
            mib(limits.result_bytes),
        ),
        row("calls of host", usage.calls.to_string(), String::new()),
    ];
    let more = [
        (
            usage.memory_peak_bytes > 0,
            row(
                "memory of the process",
                mib(usage.memory_peak_bytes),
                mib(limits.memory.group_bytes()),
            ),
        ),
        (
            usage.fetches > 0,
            row(
                "requests of host.fetch",
                usage.fetches.to_string(),
                "60 a minute".to_owned(),
            ),
        ),
        (
            usage.fetches > 0,
            row(
                "received",
                format!("{} bytes", usage.fetch_received_bytes),
                String::new(),
            ),
        ),
        (
            usage.crypto_operations > 0,
            row(
                "operations of host.crypto",
                usage.crypto_operations.to_string(),
                "200".to_owned(),
            ),
        ),
        (
            usage.log_lines > 0,
            row("lines of log", usage.log_lines.to_string(), String::new()),
        ),
    ];
    rows.extend(
        more.into_iter()
            .filter(|(is_there, _)| *is_there)
            .map(|(_, row)| row),
    );
    rows
}

#[expect(
    clippy::cast_precision_loss,
    reason = "it is shown with one digit after the point"
)]
const fn lossy(number: u64) -> f64 {
    number as f64
}

pub(super) fn warning(warning: &Warning) -> String {
    let Warning {
        limit,
        allowed,
        used,
    } = warning;
    format!("{limit} is near its limit: {used} of {allowed}")
}

/// Everything, for programs.
pub(super) fn json(result: &isolates::Result, logs: &[Log], limits: &InvocationLimits) -> Value {
    let mut object = match &result.outcome {
        Some(Outcome::ValueJson(text)) => {
            json!({ "value": serde_json::from_str::<Value>(text).unwrap_or_default() })
        }
        Some(Outcome::Fault(fault)) => json!({ "fault": fault_json(fault) }),
        Some(Outcome::NotRun(not_run)) => json!({ "not_run": {
            "reason": not_run.reason().as_str_name().to_lowercase(),
            "message": not_run.message,
            "retry_after_ms": not_run.retry_after_ms,
        } }),
        None => json!({}),
    };
    let logs = logs
        .iter()
        .map(|line| json!({ "at_ms": line.at_ms, "level": level(line), "text": line.text }));
    object["logs"] = logs.collect();
    object["logs_left_out"] = result.logs_left_out.into();
    object["usage"] = usage_json(&result.usage.unwrap_or_default(), limits);
    object["warnings"] = result
        .warnings
        .iter()
        .map(|near| json!({ "limit": near.limit, "allowed": near.allowed, "used": near.used }))
        .collect();
    object
}

pub(super) fn fault_json(fault: &Fault) -> Value {
    let stack = fault.stack.iter().map(|at| {
        json!({ "function": at.function, "file": at.file, "line": at.line, "column": at.column })
    });
    json!({
        "class": class(fault.class()).replace(' ', "_"),
        "reason": reason(fault),
        "message": fault.message,
        "at_load": fault.at_load,
        "stack": stack.collect::<Value>(),
        "evidence": fault.evidence.as_ref().map(|evidence| json!({
            "limit": evidence.limit,
            "allowed": evidence.allowed,
            "used": evidence.used,
            "denied_hosts": evidence.denied_hosts,
        })),
    })
}

fn usage_json(usage: &Usage, limits: &InvocationLimits) -> Value {
    json!({
        "wall_ms": usage.wall_ms, "queued_ms": usage.queued_ms, "wall_ms_max": u64::try_from(limits.wall.as_millis()).unwrap_or(u64::MAX),
        "cpu_us": usage.cpu_us, "heap_bytes": usage.heap_bytes, "heap_bytes_max": limits.memory.limit_bytes(),
        "buffer_bytes": usage.buffer_bytes, "memory_peak_bytes": usage.memory_peak_bytes,
        "memory_bytes_max": limits.memory.group_bytes(), "calls": usage.calls, "fetches": usage.fetches,
        "fetch_sent_bytes": usage.fetch_sent_bytes, "fetch_received_bytes": usage.fetch_received_bytes,
        "crypto_operations": usage.crypto_operations, "crypto_bytes": usage.crypto_bytes, "log_lines": usage.log_lines,
        "log_bytes": usage.log_bytes, "result_bytes": usage.result_bytes, "result_bytes_max": limits.result_bytes,
    })
}
