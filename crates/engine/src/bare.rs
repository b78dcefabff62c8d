//! What makes an engine bare: globals that are taken away, and stacks that run nobody's code.

use std::pin::pin;

use crate::{
    EngineError, Isolate,
    error::{catch, quiet_words},
};

impl Isolate {
    /// Takes properties away, each named by its path from the global object. What is not there is passed over.
    pub fn remove(&mut self, paths: &[&[&str]]) -> Result<(), EngineError> {
        self.with(|scope| {
            catch(scope, |scope| {
                for path in paths {
                    remove(scope, path)?;
                }
                Some(())
            })
        })
    }
}

fn remove(scope: &mut v8::PinScope<'_, '_>, path: &[&str]) -> Option<()> {
    let (last, way) = path.split_last()?;
    let mut object = scope.get_current_context().global(scope);
    for name in way {
        let name = v8::String::new(scope, name)?;
        let next = object.get(scope, name.into())?;
        let Ok(next) = v8::Local::<v8::Object>::try_from(next) else {
            return Some(());
        };
        object = next;
    }
    let name = v8::String::new(scope, last)?;
    object.delete(scope, name.into())?;
    Some(())
}

/// What `error.stack` says where code is not trusted: what V8 would say, and never what `Error.prepareStackTrace` does.
pub(crate) fn stack_text<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    error: v8::Local<'s, v8::Value>,
    sites: v8::Local<'s, v8::Array>,
) -> v8::Local<'s, v8::Value> {
    let mut text = quiet_words(scope, error);
    for index in 0..sites.length() {
        if let Some(site) = site_words(scope, sites, index) {
            text.push_str("\n    at ");
            text.push_str(&site);
        }
    }
    v8::String::new(scope, &text)
        .unwrap_or_else(|| v8::String::empty(scope))
        .into()
}

/// A call site's own `toString`: nobody inside can have touched it, since no call site ever gets there.
fn site_words(
    scope: &mut v8::PinScope<'_, '_>,
    sites: v8::Local<v8::Array>,
    index: u32,
) -> Option<String> {
    let scope = pin!(v8::TryCatch::new(scope));
    let scope = &mut scope.init();
    let site = sites.get_index(scope, index)?;
    let text = site.to_string(scope)?;
    Some(text.to_rust_string_lossy(scope))
}
