//! A module that stands alone: it imports nothing, and V8 may be given what it compiled of it before.

use crate::{
    EngineError, Isolate, Reference,
    error::catch,
    isolate::{Kind, origin},
};

/// A compiled module.
#[derive(Debug, Clone)]
pub struct Alone {
    module: v8::Global<v8::Module>,
    /// What it would import, in the order of its text. One that imports anything cannot be run.
    pub imports: Vec<String>,
    pub cache: CodeCache,
}

/// What became of what was compiled before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeCache {
    None,
    Used,
    /// It was made by another V8, with other options, or from another source.
    Refused,
}

impl Isolate {
    /// Compiles a module. An empty `cache` is none; one that does not fit is passed over. It must be one that this
    /// program made: V8 believes what it says.
    pub fn compile_alone(
        &mut self,
        name: &str,
        source: &str,
        cache: &[u8],
    ) -> Result<Alone, EngineError> {
        let outcome = self.with(|scope| {
            catch(scope, |scope| {
                let source = v8::String::new(scope, source)?;
                let origin = origin(scope, name, Kind::Module)?;
                let (module, cache) = compile(scope, source, &origin, cache)?;
                Some(Alone {
                    imports: crate::modules::requests(scope, module),
                    module: v8::Global::new(scope, module),
                    cache,
                })
            })
        });
        self.outcome(outcome)
    }

    /// Begins to run a module. The answer is its namespace and the promise of its end: see [`Isolate::settle`].
    pub fn run_alone(&mut self, module: &Alone) -> Result<(Reference, Reference), EngineError> {
        let outcome = self.with(|scope| {
            let module = v8::Local::new(scope, &module.module);
            let promise = crate::modules::run(scope, module)?;
            let namespace = module.get_module_namespace();
            let namespace = Reference(v8::Global::new(scope, namespace));
            Ok((namespace, Reference(v8::Global::new(scope, promise))))
        });
        self.outcome(outcome)
    }

    /// What V8 compiled of a module so far, for [`Isolate::compile_alone`] in another process.
    pub fn code_cache(&mut self, module: &Alone) -> Vec<u8> {
        self.with(|scope| {
            let module = v8::Local::new(scope, &module.module);
            let script = module.get_unbound_module_script(scope);
            script
                .create_code_cache()
                .map_or_else(Vec::new, |cache| cache.to_vec())
        })
    }
}

fn compile<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    source: v8::Local<v8::String>,
    origin: &v8::ScriptOrigin,
    cache: &[u8],
) -> Option<(v8::Local<'s, v8::Module>, CodeCache)> {
    if cache.is_empty() {
        let mut source = v8::script_compiler::Source::new(source, Some(origin));
        let module = v8::script_compiler::compile_module(scope, &mut source)?;
        return Some((module, CodeCache::None));
    }
    let cache = v8::CachedData::new(cache);
    let mut source = v8::script_compiler::Source::new_with_cached_data(source, Some(origin), cache);
    let module = v8::script_compiler::compile_module2(
        scope,
        &mut source,
        v8::script_compiler::CompileOptions::ConsumeCodeCache,
        v8::script_compiler::NoCacheReason::NoReason,
    )?;
    let is_refused = source
        .get_cached_data()
        .is_none_or(v8::CachedData::rejected);
    let cache = if is_refused {
        CodeCache::Refused
    } else {
        CodeCache::Used
    };
    Some((module, cache))
}
