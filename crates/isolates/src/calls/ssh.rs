//! `host.ssh.command`, in ssh hooks.

use bulkhead_wire::platform::{self, call::Call as Asked, ran::Ended};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Arguments, Encoding, Question};
use crate::call_error::CallError;

const COMMAND_BYTES_MAX: usize = 64 << 10;
const INPUT_BYTES_MAX: usize = 1 << 20;
const TIMEOUT_MS: u64 = 60_000;
const TIMEOUT_MS_MAX: u64 = 90_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Command {
    command: String,
    input: Option<String>,
    input_encoding: Option<Encoding>,
    timeout_ms: Option<u64>,
}

pub(super) fn command(mut arguments: Arguments) -> Result<Question, CallError> {
    let given: Command = arguments.take_text_or_object("command")?;
    arguments.end()?;
    arguments.text("command", &given.command, 1, COMMAND_BYTES_MAX)?;
    if given.command.contains('\0') {
        return Err(arguments.bad("`command` has a NUL character in it"));
    }
    let timeout_ms = arguments.number("timeoutMs", given.timeout_ms, 1_000, TIMEOUT_MS_MAX)?;
    let encoding = given.input_encoding.unwrap_or_default();
    let input = arguments.bytes(
        "input",
        given.input.unwrap_or_default(),
        encoding,
        INPUT_BYTES_MAX,
    )?;
    let asked = platform::SshCommand {
        command: given.command,
        input,
        timeout_ms: timeout_ms.unwrap_or(TIMEOUT_MS),
    };
    Ok(Asked::SshCommand(asked).into())
}

pub(super) fn value(ran: platform::Ran) -> Value {
    let (exit_code, signal) = match ran.ended {
        Some(Ended::ExitCode(code)) => (Some(code), None),
        Some(Ended::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    json!({
        "exitCode": exit_code,
        "signal": signal,
        "stdout": Encoding::Utf8.write(ran.stdout),
        "stderr": Encoding::Utf8.write(ran.stderr),
        "stdoutCut": ran.stdout_cut,
        "stderrCut": ran.stderr_cut,
        "durationMs": ran.duration_ms,
    })
}
