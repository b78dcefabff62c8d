//! The one place where errors become words, hints and exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | the work failed |
//! | 2 | wrong usage or input |
//! | 3 | refused: a boundary could not be built |
//! | 4 | stopped at a gate |
//!
//! `sandbox exec` returns its command's own code instead, 124 for a time limit, 125 where Bulkhead itself
//! failed or refused, 126 and 127 as a shell does, and 128+N for a signal.

use std::io::ErrorKind;

use bulkhead_isolates::zygotes::{StartError, ZygotesError};
use bulkhead_sandbox::{CreateError, Refusal, SpawnError};
use bulkhead_server::{Code, Problem};
use bulkhead_store::Error as StoreError;
use serde::Serialize;

use crate::output::{Format, Output};

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    Usage,
    Refused,
    Gate,
    /// What a command in the sandbox returned, or what stands for how it ended.
    Command(u8),
}

impl Exit {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Gate => 4,
            Self::Command(code) => code,
        }
    }
}

/// `sandbox exec` where Bulkhead itself failed, refused, or was called wrongly.
const EXEC_OURS: Exit = Exit::Command(125);
const EXEC_NOT_EXECUTABLE: Exit = Exit::Command(126);
const EXEC_NOT_FOUND: Exit = Exit::Command(127);

/// Whose exit codes a command uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    Ours,
    /// `sandbox exec`: codes below 124 belong to the command that it runs.
    Exec,
}

/// What the command line itself finds wrong. Libraries have errors of their own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Misuse {
    /// Wrong usage or input, with what to do instead.
    #[error("{what}")]
    Usage { what: String, hint: Option<String> },
    /// Asked for, sensible, and not part of this version.
    #[error("{what} is not part of this version")]
    NotYet { what: String, hint: String },
}

impl Misuse {
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::Usage {
            what: what.into(),
            hint: None,
        }
    }

    pub(crate) fn usage_hint(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage {
            what: what.into(),
            hint: Some(hint.into()),
        }
    }
}

/// An error as people and programs get to see it.
#[derive(Debug, Serialize)]
struct Explained {
    #[serde(skip)]
    exit: Exit,
    kind: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Several things at once, for example everything that is wrong with a workflow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<String>,
}

impl Explained {
    fn new(exit: Exit, kind: &'static str) -> Self {
        Self {
            exit,
            kind,
            message: String::new(),
            hint: None,
            findings: Vec::new(),
        }
    }
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    error: &'a Explained,
    exit_code: u8,
}

/// Says what went wrong, on standard error and, for programs, as JSON; and what the exit code is.
pub(crate) fn report(error: &anyhow::Error, errors: Errors, output: Output) -> Exit {
    if is_broken_pipe(error) {
        // Whoever read our output has seen enough: that is no failure of the work.
        return Exit::Done;
    }
    let mut explained = explain(error);
    if errors == Errors::Exec {
        explained.exit = exec_exit(error);
    }
    output.note(format_args!("bulkhead: {}", explained.message));
    for finding in &explained.findings {
        output.note(format_args!("  {finding}"));
    }
    if let Some(hint) = &explained.hint {
        output.note(format_args!("  → {hint}"));
    }
    say_json(&explained, output);
    explained.exit
}

/// What clap has to say: help and version are no failure, and `sandbox exec` has a code of its own for misuse.
pub(crate) fn wrong_usage(error: &clap::Error) -> Exit {
    let _ = error.print();
    if error.exit_code() == 0 {
        return Exit::Done;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments
        .iter()
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_exec = words.first().is_some_and(|word| *word == "sandbox");
    let mut explained = Explained::new(if is_exec { EXEC_OURS } else { Exit::Usage }, "usage");
    explained.message = error.kind().to_string();
    if arguments
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == "--json")
    {
        say_json(&explained, Output::new(Format::Json));
    }
    explained.exit
}

/// There is nobody left to tell when the error itself cannot be written.
fn say_json(explained: &Explained, output: Output) {
    let object = ErrorObject {
        error: explained,
        exit_code: explained.exit.code(),
    };
    let _ = output.json_object(&object);
}

fn explain(error: &anyhow::Error) -> Explained {
    let mut explained = error
        .chain()
        .find_map(classify)
        .unwrap_or_else(|| Explained::new(Exit::Failed, "failed"));
    explained.message = format!("{error:#}");
    explained
}

/// What kind of failure this cause makes it, if it is one that says so.
fn classify(cause: &(dyn std::error::Error + 'static)) -> Option<Explained> {
    if let Some(misuse) = cause.downcast_ref::<Misuse>() {
        return Some(of_misuse(misuse));
    }
    if let Some(problem) = cause.downcast_ref::<Problem>() {
        return Some(of_problem(problem));
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return of_store(error);
    }
    let (exit, kind, hint) = match cause.downcast_ref::<CreateError>() {
        Some(CreateError::Plan(_)) => (Exit::Usage, "usage", None),
        _ if is_refusal(cause) => (Exit::Refused, "refused", Some(DOCTOR.to_owned())),
        _ => return None,
    };
    Some(Explained {
        hint,
        ..Explained::new(exit, kind)
    })
}

const DOCTOR: &str = "bulkhead doctor shows each boundary with what was tried";

fn of_misuse(misuse: &Misuse) -> Explained {
    let (kind, hint) = match misuse {
        Misuse::Usage { hint, .. } => ("usage", hint.clone()),
        Misuse::NotYet { hint, .. } => ("not-in-this-version", Some(hint.clone())),
    };
    Explained {
        hint,
        ..Explained::new(Exit::Usage, kind)
    }
}

/// What a person named wrongly; whatever else goes wrong in the store is a failure of the work.
fn of_store(error: &StoreError) -> Option<Explained> {
    let kind = match error {
        StoreError::NotFound { .. } => "not-found",
        StoreError::WeakSecret { .. } => "weak-secret",
        StoreError::InUse { .. } => "in-use",
        StoreError::NotPrivate { .. } => "not-private",
        _ => return None,
    };
    Some(Explained::new(Exit::Usage, kind))
}

fn of_problem(problem: &Problem) -> Explained {
    let (exit, kind) = match problem.code() {
        Code::InvalidInput => (Exit::Usage, "usage"),
        Code::InvalidWorkflow => (Exit::Usage, "invalid-workflow"),
        Code::NotFound => (Exit::Usage, "not-found"),
        Code::TooLarge => (Exit::Usage, "too-large"),
        Code::Unauthenticated => (Exit::Usage, "unauthenticated"),
        Code::Forbidden => (Exit::Usage, "forbidden"),
        Code::Refused => (Exit::Refused, "refused"),
        Code::Conflict => (Exit::Failed, "conflict"),
        Code::DecisionVoid => (Exit::Failed, "decision-void"),
        Code::CannotLand => (Exit::Failed, "cannot-land"),
        Code::TimedOut => (Exit::Failed, "timed-out"),
        Code::Upstream => (Exit::Failed, "upstream"),
        Code::StorageFull => (Exit::Failed, "storage-full"),
        Code::ShuttingDown => (Exit::Failed, "shutting-down"),
        Code::Internal => (Exit::Failed, "failed"),
    };
    let body = problem.body();
    Explained {
        hint: body.remedy.clone(),
        findings: body.findings.clone(),
        ..Explained::new(exit, kind)
    }
}

fn is_refusal(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<Refusal>()
        || matches!(cause.downcast_ref(), Some(CreateError::Refused(_)))
        || matches!(cause.downcast_ref(), Some(ZygotesError::Refused(_)))
        || is_wall_missing(cause)
}

/// What runs plugins could not be locked in; its own words have the remedy.
fn is_wall_missing(cause: &(dyn std::error::Error + 'static)) -> bool {
    let start = match cause.downcast_ref() {
        Some(ZygotesError::Start(start)) => Some(start),
        _ => cause.downcast_ref(),
    };
    matches!(start, Some(StartError::WallMissing(_)))
}

fn exec_exit(error: &anyhow::Error) -> Exit {
    error
        .chain()
        .find_map(|cause| match cause.downcast_ref::<SpawnError>()? {
            SpawnError::NotFound(_) => Some(EXEC_NOT_FOUND),
            SpawnError::NotExecutable { .. } => Some(EXEC_NOT_EXECUTABLE),
            _ => None,
        })
        .unwrap_or(EXEC_OURS)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use bulkhead_sandbox::{CreateError, Refusal, SpawnError};

    use super::{EXEC_NOT_FOUND, EXEC_OURS, Exit, Misuse, exec_exit, explain};

    fn refusal() -> Refusal {
        Refusal {
            boundary: "user namespace".into(),
            seen: "unshare: EPERM".into(),
            remedy: "sysctl -w user.max_user_namespaces=1000".into(),
        }
    }

    #[test]
    fn each_kind_of_error_has_its_code_also_deep_in_a_chain() {
        let cases = [
            (anyhow!("the phase failed"), Exit::Failed),
            (Misuse::usage("no such file").into(), Exit::Usage),
            (refusal().into(), Exit::Refused),
            (CreateError::Refused(refusal()).into(), Exit::Refused),
            (CreateError::Plan("pids: 0".into()).into(), Exit::Usage),
        ];
        for (error, exit) in cases {
            let deep = error.context("doing something").context("for somebody");
            assert_eq!(explain(&deep).exit, exit, "{deep:#}");
        }
    }

    #[test]
    fn a_message_has_every_cause_once() {
        let error = anyhow!("no space left").context("writing the log");
        assert_eq!(explain(&error).message, "writing the log: no space left");
    }

    #[test]
    fn sandbox_exec_speaks_as_a_shell_does() {
        assert_eq!(
            exec_exit(&SpawnError::NotFound("x".into()).into()),
            EXEC_NOT_FOUND
        );
        assert_eq!(exec_exit(&refusal().into()), EXEC_OURS);
        assert_eq!(exec_exit(&Misuse::usage("x").into()), EXEC_OURS);
    }
}
