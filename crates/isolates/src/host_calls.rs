//! Where the functions of `host` are carried out that an invocation's process cannot carry out itself.

use async_trait::async_trait;
use bulkhead_wire::pipe;

use crate::context::InvocationContext;

/// Carries out calls of `host`. One value serves all invocations.
///
/// Before a call comes here the broker has found its method in the table ([`bulkhead_wire::methods`]), seen that it is
/// not one that is carried out inside, counted it against the method's `calls_max`, and bounded how many of one
/// invocation are under way. Arguments are as the plugin's process sent them: text that claims to be a JSON array, at
/// most as long as a frame; nothing more is known of them.
///
/// When the invocation ends, the future is dropped, wherever it is.
#[async_trait]
pub trait HostCalls: Send + Sync + 'static {
    /// The answer has the call's id. What goes wrong is an answer too.
    async fn call(&self, invocation: &InvocationContext, call: pipe::Call) -> pipe::Answer;
}

/// The answer by which a call's promise is rejected.
pub fn refusal(id: u32, code: &str, message: impl Into<String>) -> pipe::Answer {
    let error = pipe::CallError {
        code: code.to_owned(),
        message: message.into(),
    };
    pipe::Answer {
        id,
        outcome: Some(pipe::answer::Outcome::Error(error)),
    }
}

/// Offers nothing: every call is `unavailable`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NothingOffered;

#[async_trait]
impl HostCalls for NothingOffered {
    async fn call(&self, _: &InvocationContext, call: pipe::Call) -> pipe::Answer {
        refusal(
            call.id,
            "unavailable",
            "this service offers no functions of `host`",
        )
    }
}
