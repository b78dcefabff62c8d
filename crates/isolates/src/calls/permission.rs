//! Which function needs which permission. The installer has seen it; the platform checks it too.

use bulkhead_model::plugin::manifest::Permission;
use bulkhead_wire::methods::Method;

use crate::{
    call_error::{CallError, Code},
    context::Authority,
};

/// The permission that a function needs, where it needs one. Secrets and hosts are declared one by one instead, and a
/// live connection is a capability.
pub const fn permission_of(method: u32) -> Option<Permission> {
    Some(match method {
        30 | 39 => Permission::SessionRead,
        31 => Permission::SessionPost,
        33 | 34 => Permission::SessionTodos,
        35..=37 => Permission::SessionTimers,
        38 | 70 => Permission::Llm,
        50..=52 => Permission::Agents,
        55 => Permission::Models,
        60 | 62 | 63 => Permission::WorkspaceRead,
        61 | 64 | 65 => Permission::WorkspaceWrite,
        75..=77 => Permission::Decide,
        80 | 82 => Permission::Media,
        81 => Permission::MediaTranscode,
        90 => Permission::Ssh,
        _ => return None,
    })
}

pub(super) fn check(authority: &Authority, method: &Method) -> Result<(), CallError> {
    let Some(needed) = permission_of(method.number) else {
        return Ok(());
    };
    let name = needed.name();
    if authority.permissions.contains(name) {
        return Ok(());
    }
    let path = method.path;
    let message = format!(
        "host.{path}: the plugin has no permission `{name}`; declare it under `permissions` in plugin.json"
    );
    Err(CallError::new(Code::Denied, message))
}
