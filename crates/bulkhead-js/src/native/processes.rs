//! Processes of the host.

use std::rc::Rc;

use bulkhead_engine::{Function, Thrown, Value, later, now};
use bulkhead_host::{Command, ExitStatus, HostError, Signal, Stdio, Stream, Target, TerminalSize};

use super::{
    Native,
    arguments::{Arguments, chain},
    streams::Work,
};

pub(super) fn functions(native: &Rc<Native>) -> Vec<(&'static str, Function)> {
    let function = |run: fn(&Native, Arguments) -> Result<Work, Thrown>| {
        let native = Rc::clone(native);
        later(move |values| {
            let work = run(&native, Arguments::new(values));
            let begun = work.map(|work| native.outside.begin(work));
            async move { begun?.await }
        })
    };
    let describe = Rc::clone(native);
    vec![
        (
            "hostDescribe",
            now(move |_| Ok(describe.host()?.describe().into())),
        ),
        ("spawn", function(spawn)),
        ("processWait", function(wait)),
        ("processSignal", function(signal)),
        ("processResize", function(resize)),
    ]
}

fn spawn(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let command = command(&arguments.value())?;
    let (host, held) = (native.host()?, std::sync::Arc::clone(&native.held));
    Ok(Box::pin(async move {
        let process = host.spawn(command).await.map_err(|error| of_host(&error))?;
        let id = held.processes.insert(process.control)?;
        let stream = |reader| match reader {
            Some(reader) => held.add_reader(reader),
            None => Ok(Value::Null),
        };
        let stdin = match process.stdin {
            Some(writer) => held.add_writer(writer)?,
            None => Value::Null,
        };
        Ok(Value::object([
            ("id", Value::Number(id.into())),
            ("stdin", stdin),
            ("stdout", stream(process.stdout)?),
            ("stderr", stream(process.stderr)?),
        ]))
    }))
}

fn command(value: &Value) -> Result<Command, Thrown> {
    let malformed = || Thrown::type_error("the command is malformed");
    let texts = |value: &Value| match value {
        Value::List(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(malformed))
            .collect::<Result<Vec<_>, _>>(),
        _ => Err(malformed()),
    };
    let mut command = Command::new(texts(value.get("argv"))?);
    if let Some(cwd) = value.get("cwd").as_str() {
        command = command.cwd(cwd);
    }
    let Value::List(env) = value.get("env") else {
        return Err(malformed());
    };
    for pair in env {
        match texts(pair)?.as_slice() {
            [name, value] => command = command.env(name, value),
            _ => return Err(malformed()),
        }
    }
    Ok(command.stdio(stdio(value).ok_or_else(malformed)?))
}

fn stdio(value: &Value) -> Option<Stdio> {
    let terminal = value.get("terminal");
    if let (Some(columns), Some(rows)) = (
        terminal.get("columns").as_number(),
        terminal.get("rows").as_number(),
    ) {
        return Some(Stdio::Terminal(size(columns, rows)));
    }
    let Value::List(streams) = value.get("streams") else {
        return None;
    };
    let stream = |index: usize| match streams.get(index)?.as_bool()? {
        true => Some(Stream::Pipe),
        false => Some(Stream::Null),
    };
    Some(Stdio::Streams {
        stdin: stream(0)?,
        stdout: stream(1)?,
        stderr: stream(2)?,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is between 1 and 65,535"
)]
fn size(columns: f64, rows: f64) -> TerminalSize {
    let cells = |number: f64| number.clamp(1.0, 65_535.0) as u16;
    TerminalSize {
        rows: cells(rows),
        columns: cells(columns),
    }
}

fn wait(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let number = arguments.u32()?;
    let process = native.held.processes.get(number)?;
    Ok(Box::pin(async move {
        let (code, signal) = match process.wait().await {
            ExitStatus::Code(code) => (Value::Number(code.into()), Value::Null),
            ExitStatus::Signal(signal) => (Value::Null, signal_name(signal).into()),
            ExitStatus::HostEnded => (Value::Null, "HOSTENDED".into()),
        };
        Ok(Value::object([("code", code), ("signal", signal)]))
    }))
}

fn signal(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let process = native.held.processes.get(arguments.u32()?)?;
    let (name, group) = (arguments.text()?, arguments.flag()?);
    let signal = SIGNALS
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| Thrown::type_error(format!("Unknown signal: {name}")))?
        .2;
    let target = if group {
        Target::Group
    } else {
        Target::Process
    };
    Ok(Box::pin(async move {
        let sent = process.signal(signal, target).await;
        sent.map_err(|error| of_host(&error))?;
        Ok(Value::Undefined)
    }))
}

fn resize(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let process = native.held.processes.get(arguments.u32()?)?;
    let size = size(arguments.number()?, arguments.number()?);
    Ok(Box::pin(async move {
        let resized = process.resize(size).await;
        resized.map_err(|error| of_host(&error))?;
        Ok(Value::Undefined)
    }))
}

/// Node's name, Linux' number, and ours.
const SIGNALS: &[(&str, i32, Signal)] = &[
    ("SIGHUP", 1, Signal::Hangup),
    ("SIGINT", 2, Signal::Interrupt),
    ("SIGQUIT", 3, Signal::Quit),
    ("SIGUSR1", 10, Signal::User1),
    ("SIGUSR2", 12, Signal::User2),
    ("SIGTERM", 15, Signal::Terminate),
    ("SIGSTOP", 19, Signal::Stop),
    ("SIGCONT", 18, Signal::Continue),
    ("SIGKILL", 9, Signal::Kill),
];

/// Those that end a process and cannot be sent here.
const OTHER_ENDS: &[(&str, i32)] = &[
    ("SIGILL", 4),
    ("SIGTRAP", 5),
    ("SIGABRT", 6),
    ("SIGBUS", 7),
    ("SIGFPE", 8),
    ("SIGSEGV", 11),
    ("SIGPIPE", 13),
    ("SIGALRM", 14),
    ("SIGXCPU", 24),
    ("SIGXFSZ", 25),
    ("SIGSYS", 31),
];

fn signal_name(number: i32) -> String {
    let known = SIGNALS.iter().map(|(name, number, _)| (*name, *number));
    known
        .chain(OTHER_ENDS.iter().copied())
        .find(|(_, is)| *is == number)
        .map_or_else(|| format!("SIG{number}"), |(name, _)| name.to_owned())
}

/// An error of a host, with Node's code where it has one.
pub(super) fn of_host(error: &HostError) -> Thrown {
    let thrown = chain(error);
    match error {
        HostError::NotFound { program, .. } => thrown
            .with("code", "ENOENT".into())
            .with("path", program.as_str().into()),
        HostError::Refused(_) => thrown.with("code", "ERR_HOST_REFUSED".into()),
        HostError::Unsupported { .. } => thrown.with("code", "ENOTSUP".into()),
        HostError::Gone { .. } => thrown.with("code", "ERR_HOST_GONE".into()),
        HostError::Forward { source, .. } => match source.downcast_ref::<std::io::Error>() {
            Some(io) => match super::streams::broken(io).properties.pop() {
                Some((name, code)) => thrown.with(&name, code),
                None => thrown,
            },
            None => thrown,
        },
        _ => thrown,
    }
}
