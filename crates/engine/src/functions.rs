//! Host functions: closures that JavaScript calls.

use std::rc::Rc;

use futures::future::LocalBoxFuture;

use crate::{
    Crossing, CrossingKind, EngineError, JsError, JsonLimits, Thrown, Value,
    error::{ThrownKind, quiet_words},
    isolate::{Isolate, State},
    json,
};

/// What a host function answers.
pub enum Answer {
    /// The value is the call's result; the error is thrown from it.
    Now(Result<Value, Thrown>),
    /// The call's result is a promise, which the future's outcome settles.
    Later(LocalBoxFuture<'static, Result<Value, Thrown>>),
}

/// A host function. It is called on the isolate's thread, in the middle of JavaScript, and must not block longer
/// than that JavaScript may be held up.
pub type Function = Box<dyn Fn(Vec<Value>) -> Answer>;

/// How a host function takes its arguments.
pub enum Native {
    /// As values, each of which may have so many bytes: a longer one is an error of the call. Where there is such a
    /// limit, lists and objects come as JSON.
    Values { run: Function, bytes_max: usize },
    /// As one JSON list, or why they make none.
    Json {
        run: Box<dyn Fn(Result<String, Crossing>) -> Answer>,
        limits: JsonLimits,
    },
    /// As words for people: text as it is, data as JSON, all else as V8 shows it; each cut to so many bytes.
    Words {
        run: Box<dyn Fn(Vec<String>) -> Answer>,
        bytes_max: usize,
    },
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native").finish_non_exhaustive()
    }
}

/// A function that answers at once.
pub fn now(run: impl Fn(Vec<Value>) -> Result<Value, Thrown> + 'static) -> Function {
    Box::new(move |arguments| Answer::Now(run(arguments)))
}

/// A function that answers by a promise.
pub fn later<F>(run: impl Fn(Vec<Value>) -> F + 'static) -> Function
where
    F: Future<Output = Result<Value, Thrown>> + 'static,
{
    Box::new(move |arguments| Answer::Later(Box::pin(run(arguments))))
}

impl Isolate {
    /// Makes a global object `name` with these functions. It is not enumerable, and whoever runs first may take it
    /// and delete it.
    pub fn install(
        &mut self,
        name: &str,
        functions: Vec<(&str, Function)>,
    ) -> Result<(), EngineError> {
        let state = Rc::clone(self.state());
        self.with(|scope| {
            crate::error::catch(scope, |scope| {
                let object = v8::Object::new(scope);
                for (name, function) in functions {
                    let name = v8::String::new(scope, name)?;
                    let native = Native::Values {
                        run: function,
                        bytes_max: usize::MAX,
                    };
                    let function = make(scope, &state, native)?;
                    object.create_data_property(scope, name.into(), function.into())?;
                }
                let global = scope.get_current_context().global(scope);
                let name = v8::String::new(scope, name)?;
                let hidden = v8::PropertyAttribute::DONT_ENUM;
                global.define_own_property(scope, name.into(), object.into(), hidden)
            })
        })?;
        Ok(())
    }
}

/// The function's data is its number in the state, where the closure is.
pub(crate) fn make<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &Rc<State>,
    function: Native,
) -> Option<v8::Local<'s, v8::Function>> {
    let mut functions = state.functions.borrow_mut();
    let index = u32::try_from(functions.len()).ok()?;
    functions.push(Rc::from(function));
    let data = v8::Integer::new_from_unsigned(scope, index);
    v8::Function::builder(called)
        .data(data.into())
        .constructor_behavior(v8::ConstructorBehavior::Throw)
        .build(scope)
}

fn called(
    scope: &mut v8::PinScope,
    arguments: v8::FunctionCallbackArguments,
    mut result: v8::ReturnValue,
) {
    let state = Rc::clone(State::of(scope));
    let index = arguments.data().uint32_value(scope).unwrap_or_default();
    let function = state.functions.borrow().get(index as usize).cloned();
    let Some(function) = function else { return };
    let outcome = match answer(scope, &function, &arguments) {
        // What ends execution goes on ending it.
        Err(EngineError::Terminated(_)) => return,
        Err(error) => Err(thrown(&error)),
        Ok(Answer::Now(outcome)) => outcome,
        Ok(Answer::Later(future)) => {
            if let Some(promise) = state.promise_for(scope, future) {
                result.set(promise.into());
            }
            return;
        }
    };
    match outcome.and_then(|value| value.to_v8(scope).map_err(|error| thrown(&error))) {
        Ok(value) => result.set(value),
        Err(error) => {
            let exception = error.to_exception(scope);
            scope.throw_exception(exception);
        }
    }
}

fn answer(
    scope: &mut v8::PinScope<'_, '_>,
    function: &Native,
    arguments: &v8::FunctionCallbackArguments,
) -> Result<Answer, EngineError> {
    let count = arguments.length();
    match function {
        Native::Values { run, bytes_max } => {
            let values = (0..count)
                .map(|index| Value::from_v8_within(scope, arguments.get(index), *bytes_max))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(run(values))
        }
        Native::Json { run, limits } => match json::write_arguments(scope, arguments, limits) {
            Ok(text) => Ok(run(Ok(text))),
            Err(EngineError::Crossing(crossing)) => Ok(run(Err(crossing))),
            Err(error) => Err(error),
        },
        Native::Words { run, bytes_max } => {
            let words = (0..count)
                .map(|index| words(scope, arguments.get(index), *bytes_max))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(run(words))
        }
    }
}

fn words(
    scope: &mut v8::PinScope<'_, '_>,
    value: v8::Local<v8::Value>,
    bytes_max: usize,
) -> Result<String, EngineError> {
    let is_data = value.is_object() && !value.is_native_error() && !value.is_proxy();
    if is_data {
        match json::write(scope, value, "value", &JsonLimits::of_bytes(bytes_max)) {
            Ok(text) => return Ok(text),
            Err(EngineError::Crossing(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let mut words = quiet_words(scope, value);
    words.truncate(words.floor_char_boundary(bytes_max));
    Ok(words)
}

/// An error of a conversion, as JavaScript sees it.
pub(crate) fn thrown(error: &EngineError) -> Thrown {
    let message = match error {
        EngineError::Thrown(JsError { message, .. }) => message.clone(),
        error => error.to_string(),
    };
    let (kind, code) = match error {
        EngineError::Crossing(crossing) if crossing.kind == CrossingKind::TooLarge => {
            (ThrownKind::RangeError, Some("limit"))
        }
        EngineError::Crossing(_) => (ThrownKind::TypeError, Some("bad_request")),
        _ => (ThrownKind::TypeError, None),
    };
    let thrown = Thrown {
        kind,
        ..Thrown::new(message)
    };
    match code {
        Some(code) => thrown.with("code", code.into()),
        None => thrown,
    }
}
