//! `host.settings.getSecret` (P5): only what is declared and bound, and hidden from the moment it is given.

use bulkhead_wire::platform::{self, call::Call as Asked};
use serde_json::Value;

use super::{Arguments, Question, Reading, failed};
use crate::{
    call_error::{CallError, Code},
    context::InvocationContext,
};

const NAME_BYTES_MAX: usize = 64;
const VALUE_BYTES_MAX: usize = 64 << 10;

pub(super) fn ask(
    invocation: &InvocationContext,
    mut arguments: Arguments,
) -> Result<Question, CallError> {
    let name: String = arguments.take("name")?;
    arguments.end()?;
    arguments.text("name", &name, 1, NAME_BYTES_MAX)?;
    if !invocation.authority().secrets.contains(&name) {
        let message = format!(
            "host.settings.getSecret: {name:?} is not declared under `secrets` in plugin.json, or the user has not bound it"
        );
        return Err(CallError::new(Code::Denied, message));
    }
    let asked = Asked::GetSecret(platform::GetSecret { name: name.clone() });
    Ok(Question::reading(asked, Reading::Secret(name)))
}

pub(super) fn value(
    invocation: &InvocationContext,
    reading: &Reading,
    secret: platform::Secret,
) -> Result<Value, CallError> {
    let Reading::Secret(name) = reading else {
        return Err(failed("no secret was asked for"));
    };
    if secret.value.len() > VALUE_BYTES_MAX {
        return Err(failed(format!("the secret {name:?} is too large")));
    }
    let added = invocation.secrets().add(name, secret.value.as_str().into());
    added.map_err(|error| CallError::new(Code::Limit, error.to_string()))?;
    Ok(secret.value.into())
}
