//! The state of a heap, made once, from which isolates begin.

use std::{pin::pin, rc::Rc, sync::Arc};

use crate::{
    EngineError,
    error::catch,
    isolate::{Kind, State, Trust, origin},
};

/// What scripts have made of a bare engine. It holds no host function: they are installed into each isolate.
#[derive(Clone)]
pub struct Snapshot {
    bytes: Arc<[u8]>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} bytes)", self.bytes.len())
    }
}

impl Snapshot {
    /// Runs scripts, each with its name and source, and keeps what they made. V8 must have been started, and
    /// isolates from the snapshot need the same options of [`crate::start`].
    pub fn new(scripts: &[(&str, &str)]) -> Result<Self, EngineError> {
        let mut creator = v8::Isolate::snapshot_creator(None, None);
        creator.set_slot(State::new(None, Trust::User));
        let outcome = run_all(&mut creator, scripts);
        creator.remove_slot::<Rc<State>>();
        let data = creator
            .create_blob(v8::FunctionCodeHandling::Keep)
            .ok_or_else(|| EngineError::Value("V8 made no snapshot".into()));
        outcome?;
        Ok(Self {
            bytes: Arc::from(&*data?),
        })
    }

    pub(crate) fn data(&self) -> v8::StartupData {
        v8::StartupData::from(self.bytes.to_vec())
    }
}

fn run_all(creator: &mut v8::OwnedIsolate, scripts: &[(&str, &str)]) -> Result<(), EngineError> {
    let scope = pin!(v8::HandleScope::new(creator));
    let scope = &mut scope.init();
    let context = v8::Context::new(scope, v8::ContextOptions::default());
    // V8 makes a snapshot only where there is a context to put into it.
    scope.set_default_context(context);
    let scope = &mut v8::ContextScope::new(scope, context);
    for (name, source) in scripts {
        catch(scope, |scope| {
            let source = v8::String::new(scope, source)?;
            let origin = origin(scope, name, Kind::Script)?;
            v8::Script::compile(scope, source, Some(&origin))?.run(scope)
        })?;
    }
    Ok(())
}
