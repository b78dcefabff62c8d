//! Host functions: closures that JavaScript calls.

use std::rc::Rc;

use futures::future::LocalBoxFuture;

use crate::{
    EngineError, JsError, Thrown, Value,
    error::ThrownKind,
    isolate::{Isolate, State},
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
                    let function = make(scope, &state, function)?;
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
fn make<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &Rc<State>,
    function: Function,
) -> Option<v8::Local<'s, v8::Function>> {
    let mut functions = state.functions.borrow_mut();
    let index = u32::try_from(functions.len()).ok()?;
    functions.push(Rc::from(function));
    let data = v8::Integer::new_from_unsigned(scope, index);
    v8::Function::builder(called).data(data.into()).build(scope)
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
    let values = (0..arguments.length())
        .map(|index| Value::from_v8(scope, arguments.get(index)))
        .collect::<Result<Vec<_>, _>>();
    let outcome = match values {
        Ok(values) => match function(values) {
            Answer::Now(outcome) => outcome,
            Answer::Later(future) => {
                if let Some(promise) = state.promise_for(scope, future) {
                    result.set(promise.into());
                }
                return;
            }
        },
        Err(error) => Err(thrown(&error)),
    };
    match outcome.and_then(|value| value.to_v8(scope).map_err(|error| thrown(&error))) {
        Ok(value) => result.set(value),
        Err(error) => {
            let exception = error.to_exception(scope);
            scope.throw_exception(exception);
        }
    }
}

/// An error of a conversion, as JavaScript sees it.
pub(crate) fn thrown(error: &EngineError) -> Thrown {
    let message = match error {
        EngineError::Thrown(JsError { message, .. }) => message.clone(),
        error => error.to_string(),
    };
    Thrown {
        kind: ThrownKind::TypeError,
        ..Thrown::new(message)
    }
}
