//! From how a process was driven to the result that the caller gets.

use std::time::Duration;

use bulkhead_wire::{
    isolates::{Fault, NotRun, Result as Outcome, Usage, result::Outcome as How},
    pipe::{self, done},
};
use serde::de::IgnoredAny;

use super::Refused;
use crate::{
    context::InvocationContext,
    fault::{self, Judge, millis},
    hold,
    invocation::{Driven, End},
    usage,
};

/// A result, and what the service's own counts make of it.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) outcome: Outcome,
    pub(crate) end: hold::End,
    pub(crate) is_fault: bool,
    pub(crate) was_killed: bool,
}

/// How an invocation ended that was driven.
pub(crate) fn judge(
    driven: Driven,
    context: &InvocationContext,
    queued: Duration,
    memory_peak_bytes: Option<u64>,
) -> Result<Judged, Refused> {
    let limits = context.authority().limits;
    let judge = Judge {
        limits,
        secrets: context.secrets(),
        used: context.counters().used(),
    };
    let mut usage = usage_of(&driven, context, queued, memory_peak_bytes);
    let (took, phase) = (driven.took, driven.phase);
    let was_killed = !matches!(driven.end, End::Done(_) | End::Died(_));
    let mut left_out = driven.logs.left_out();
    let how = match driven.end {
        End::Done(done) => {
            let said = done.usage.unwrap_or_default();
            add_said(&mut usage, &said);
            left_out = left_out.saturating_add(done.logs_left_out);
            done_as(&judge, done.outcome, &said, &mut usage, took)
        }
        End::TimedOut => Err(Box::new(judge.timed_out(took, phase))),
        End::Died(death) => Err(Box::new(judge.died(death.as_ref(), phase))),
        End::Broke(how) => Err(Box::new(judge.broke(&how, took, phase))),
        End::Gone(gone) => return Err(gone.into()),
    };
    let end = match &how {
        Ok(_) => hold::End::Success,
        Err(fault) if fault::is_death(fault.reason()) => hold::End::Death,
        Err(_) => hold::End::Other,
    };
    let warnings = usage::warnings(&usage, &limits);
    let is_fault = how.is_err();
    let outcome = Outcome {
        outcome: Some(match how {
            Ok(value) => How::ValueJson(value),
            Err(fault) => How::Fault(*fault),
        }),
        usage: Some(usage),
        warnings,
        logs_left_out: left_out,
    };
    Ok(Judged {
        outcome,
        end,
        is_fault,
        was_killed,
    })
}

/// How an invocation ended that never got to a process, or was given up with its caller.
pub(crate) fn not_run(not_run: NotRun, after: Duration) -> Outcome {
    Outcome {
        outcome: Some(How::NotRun(not_run)),
        usage: Some(Usage {
            wall_ms: millis(after),
            queued_ms: millis(after),
            ..Usage::default()
        }),
        warnings: Vec::new(),
        logs_left_out: 0,
    }
}

/// What the process says of its end, as far as it can be believed.
fn done_as(
    judge: &Judge<'_>,
    said: Option<done::Outcome>,
    used: &pipe::Usage,
    usage: &mut Usage,
    took: Duration,
) -> Result<String, Box<Fault>> {
    let broke = |how| Err(Box::new(judge.broke(how, took, fault::Phase::Handling)));
    match said {
        Some(done::Outcome::ResultJson(json)) => {
            usage.result_bytes = json.len() as u64;
            if usage.result_bytes > judge.limits.result_bytes {
                return Err(Box::new(judge.result_too_large(usage.result_bytes)));
            }
            match serde_json::from_str::<IgnoredAny>(&json) {
                Ok(IgnoredAny) => Ok(json),
                Err(_) => broke("a result that is no JSON"),
            }
        }
        Some(done::Outcome::Failure(failure)) => Err(Box::new(judge.failed(&failure, used))),
        // `Life` lets no such end through.
        Some(done::Outcome::Exports(_)) | None => broke("an end that is none"),
    }
}

fn usage_of(
    driven: &Driven,
    context: &InvocationContext,
    queued: Duration,
    memory_peak_bytes: Option<u64>,
) -> Usage {
    let used = context.counters().used();
    Usage {
        wall_ms: millis(queued + driven.took),
        queued_ms: millis(queued),
        memory_peak_bytes: memory_peak_bytes.unwrap_or(0),
        calls: driven.calls,
        fetches: used.fetches,
        fetch_sent_bytes: used.fetch_sent_bytes,
        fetch_received_bytes: used.fetch_received_bytes,
        log_lines: driven.logs.lines(),
        log_bytes: driven.logs.bytes(),
        ..Usage::default()
    }
}

/// What only the process knows; it is shown, and nothing is decided by it.
fn add_said(usage: &mut Usage, said: &pipe::Usage) {
    usage.cpu_us = said.cpu_us;
    usage.heap_bytes = said.heap_bytes;
    usage.buffer_bytes = said.buffer_bytes;
    usage.crypto_operations = said.crypto_operations;
    usage.crypto_bytes = said.crypto_bytes;
}
