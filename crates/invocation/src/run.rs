//! From `Start` to `Done`.

use bulkhead_engine::{Alone, EngineError, Isolate, JsonLimits, Reference, Shape, check_json};
use bulkhead_wire::pipe::{
    Done, FROM_INVOCATION_BYTES_MAX, Failure, Loaded, Ready, Run, Start, TO_INVOCATION_BYTES_MAX,
    Usage, done::Outcome, failure::Reason, from_invocation::Frame, start::Work,
};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    PipeError, check,
    drive::{Driven, Shared},
    fault::{self, NEVER_SETTLES, Time, failure},
};

/// What a frame needs beside the result in it.
const AROUND_RESULT_BYTES: usize = 64 << 10;

/// Why an invocation ends before its result.
pub(crate) enum Ended {
    Failed(Box<Failure>),
    Pipe(PipeError),
}

impl From<PipeError> for Ended {
    fn from(error: PipeError) -> Self {
        Self::Pipe(error)
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

pub(crate) fn serve(isolate: &mut Isolate, shared: &Shared) -> Result<(), PipeError> {
    shared.with_pipe(|pipe| pipe.send(Frame::Ready(Ready {})))?;
    let start = shared.with_pipe(|pipe| pipe.start())?;
    let outcome = match outcome(isolate, shared, start) {
        Ok(outcome) => outcome,
        Err(Ended::Failed(failure)) => Outcome::Failure(*failure),
        Err(Ended::Pipe(error)) => return Err(error),
    };
    let done = Done {
        outcome: Some(outcome),
        usage: Some(usage(isolate, shared)),
        logs_left_out: shared.logs.left_out(),
    };
    shared.with_pipe(|pipe| pipe.send(Frame::Done(done)))
}

fn outcome(isolate: &mut Isolate, shared: &Shared, start: Start) -> Result<Outcome, Ended> {
    match start.work {
        Some(Work::Run(ref run)) => {
            check_input(run, shared)?;
            let (_, namespace) = load(isolate, shared, &start)?;
            shared.with_pipe(|pipe| pipe.send(Frame::Loaded(Loaded {})))?;
            let result = call(isolate, shared, run, &namespace)?;
            Ok(Outcome::ResultJson(result))
        }
        Some(Work::Check(ref check)) => {
            let mut start = start.clone();
            if check.typescript {
                start.source = check::without_types(&start.source, &start.file)?;
            }
            let (module, namespace) = load(isolate, shared, &start)?;
            let mut exports = check::exports(isolate, &module, &namespace, check)
                .map_err(|error| fault::of_engine(&error, Reason::Threw, Time::Load))?;
            exports.javascript = check.typescript.then_some(start.source);
            Ok(Outcome::Exports(exports))
        }
        None => Err(PipeError::Unexpected("a start without work").into()),
    }
}

/// Before anything is compiled: what is no input costs nothing.
fn check_input(run: &Run, shared: &Shared) -> Result<(), Failure> {
    let limits = JsonLimits::of_bytes(TO_INVOCATION_BYTES_MAX);
    for (name, text) in [("input", &run.input_json), ("settings", &run.settings_json)] {
        if let Err((_, reason)) = check_json(text, &limits) {
            let message = format!("the {name} {reason}");
            return Err(failure(Reason::Input, &message, Time::Load));
        }
    }
    let settings = match run.settings_json.as_str() {
        "" => "{}",
        settings => settings,
    };
    settings.clone_into(&mut shared.settings.borrow_mut());
    Ok(())
}

/// Compiles and runs the module, to the end of what it awaits itself.
fn load(
    isolate: &mut Isolate,
    shared: &Shared,
    start: &Start,
) -> Result<(Alone, Reference), Ended> {
    let module = isolate
        .compile_alone(&start.file, &start.source, &start.code_cache)
        .map_err(|error| fault::of_engine(&error, Reason::Syntax, Time::Load))?;
    if let Some(import) = module.imports.first() {
        let import = fault::cut(import, 100);
        let message = format!(
            "it imports {import:?}: a plugin is one module without imports; bundle what it needs into it"
        );
        return Err(failure(Reason::Imports, &message, Time::Load).into());
    }
    let (namespace, promise) = isolate
        .run_alone(&module)
        .map_err(|error| fault::of_engine(&error, Reason::Threw, Time::Load))?;
    settle(isolate, shared, &promise, Time::Load)?;
    Ok((module, namespace))
}

fn call(
    isolate: &mut Isolate,
    shared: &Shared,
    run: &Run,
    namespace: &Reference,
) -> Result<String, Ended> {
    let handler = handler(isolate, namespace, &run.handler)?;
    let limits = JsonLimits::of_bytes(TO_INVOCATION_BYTES_MAX);
    let input = isolate
        .from_json(&run.input_json, "the input", &limits)
        .map_err(|error| match error {
            EngineError::Crossing(crossing) => {
                failure(Reason::Input, &crossing.to_string(), Time::Load)
            }
            error => fault::of_engine(&error, Reason::Input, Time::Load),
        })?;
    let thrown = |error| fault::of_engine(&error, Reason::Threw, Time::Run);
    let returned = isolate.call(&handler, &[(&input).into()]).map_err(thrown)?;
    let promise = isolate.awaited(&returned).map_err(thrown)?;
    let result = settle(isolate, shared, &promise, Time::Run)?;
    if let Some(error) = isolate.take_unhandled().first() {
        return Err(unhandled(error).into());
    }
    let bytes_max = usize::try_from(run.result_bytes_max).unwrap_or(usize::MAX);
    let bytes_max = bytes_max.min(FROM_INVOCATION_BYTES_MAX - AROUND_RESULT_BYTES);
    let limits = JsonLimits::of_bytes(bytes_max);
    isolate
        .to_json(&result, "result", &limits)
        .map_err(|error| fault::of_engine(&error, Reason::Threw, Time::Run).into())
}

fn unhandled(error: &bulkhead_engine::JsError) -> Failure {
    let mut failure = fault::of_thrown(error, Reason::UnhandledRejection, Time::Run);
    let message = format!(
        "a promise was rejected and nobody handled it (await it, or add .catch): {}",
        failure.message
    );
    failure.message = fault::cut(&message, fault::MESSAGE_CHARS_MAX);
    failure
}

/// The way from the module's exports to a function.
fn handler(
    isolate: &mut Isolate,
    namespace: &Reference,
    path: &[String],
) -> Result<Reference, Failure> {
    let mut at = namespace.clone();
    for name in path {
        let found = isolate
            .own_property(&at, name)
            .map_err(|error| fault::of_engine(&error, Reason::NoHandler, Time::Load))?;
        let Some(found) = found else {
            return Err(no_handler(path, "is not exported"));
        };
        at = found;
    }
    match isolate.shape(&at) {
        Shape::Function => Ok(at),
        _ => Err(no_handler(path, "is not a function")),
    }
}

fn no_handler(path: &[String], what: &str) -> Failure {
    let path = path.join(".");
    let message = format!("the handler {path} {what}: the module must export it");
    failure(Reason::NoHandler, &message, Time::Load)
}

fn settle(
    isolate: &mut Isolate,
    shared: &Shared,
    promise: &Reference,
    time: Time,
) -> Result<Reference, Ended> {
    match shared.drive(isolate, promise)? {
        Driven::Settled(value) => Ok(value),
        Driven::Failed(error) => Err(fault::of_engine(&error, Reason::Threw, time).into()),
        Driven::NeverSettles => match isolate.take_unhandled().first() {
            // It is why nothing goes on.
            Some(error) => Err(unhandled(error).into()),
            None => Err(failure(Reason::NeverSettles, NEVER_SETTLES, time).into()),
        },
    }
}

fn usage(isolate: &mut Isolate, shared: &Shared) -> Usage {
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(cpu.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(cpu.tv_nsec).unwrap_or_default();
    Usage {
        cpu_us: seconds * 1_000_000 + nanoseconds / 1000,
        heap_bytes: isolate.heap_used_bytes() as u64,
        buffer_bytes: isolate.buffers_used_bytes() as u64,
        crypto_operations: shared.crypto.operations(),
        crypto_bytes: shared.crypto.bytes(),
    }
}
