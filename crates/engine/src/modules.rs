//! ECMAScript modules: a loader finds their sources, by name.

use std::{collections::HashMap, rc::Rc};

use crate::{
    EngineError, Isolate, Reference, Thrown,
    error::{catch, describe},
    isolate::{Kind, State, origin},
    raw,
};

/// Finds modules. A module's name is an absolute URL or whatever else the loader takes; it is what `import.meta.url`
/// says, and what an error's place says, without `file://`.
pub trait Loader {
    /// The name of the module that `specifier` means in the module `referrer`.
    fn resolve(&self, specifier: &str, referrer: &str) -> Result<String, Thrown>;

    /// The JavaScript of a module.
    fn load(&self, name: &str) -> Result<String, Thrown>;
}

/// The modules of an isolate, by name, and the edges between them.
#[derive(Default)]
pub(crate) struct Modules {
    loader: Option<Rc<dyn Loader>>,
    by_name: HashMap<String, v8::Global<v8::Module>>,
    names: HashMap<v8::Global<v8::Module>, String>,
    imports: HashMap<(v8::Global<v8::Module>, String), String>,
}

impl Modules {
    pub(crate) fn resolved(
        &self,
        referrer: &v8::Global<v8::Module>,
        specifier: &str,
    ) -> Option<v8::Global<v8::Module>> {
        let name = self
            .imports
            .get(&(referrer.clone(), specifier.to_owned()))?;
        self.by_name.get(name).cloned()
    }

    pub(crate) fn url(&self, module: &v8::Global<v8::Module>) -> Option<String> {
        self.names.get(module).cloned()
    }
}

impl Isolate {
    /// Loads a module with all that it imports, and begins to run it. The answer is its namespace and the promise
    /// of its end: see [`Isolate::settle`]. Later imports use the same loader.
    pub fn load(
        &mut self,
        loader: Rc<dyn Loader>,
        name: &str,
    ) -> Result<(Reference, Reference), EngineError> {
        self.state().modules.borrow_mut().loader = Some(loader);
        let outcome = self.with(|scope| {
            let module = load_graph(scope, name)?;
            let promise = run(scope, module)?;
            let namespace = module.get_module_namespace();
            let namespace = Reference(v8::Global::new(scope, namespace));
            Ok((namespace, Reference(v8::Global::new(scope, promise))))
        });
        self.outcome(outcome)
    }
}

/// Instantiates and evaluates; the promise is of the evaluation's end.
pub(crate) fn run<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    module: v8::Local<'s, v8::Module>,
) -> Result<v8::Local<'s, v8::Value>, EngineError> {
    catch(scope, |scope| {
        module.instantiate_module(scope, raw::resolve_import)
    })?;
    catch(scope, |scope| module.evaluate(scope))
}

/// Compiles a module and whatever it imports that is not there yet.
fn load_graph<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    name: &str,
) -> Result<v8::Local<'s, v8::Module>, EngineError> {
    let state = Rc::clone(State::of(scope));
    let first = compile(scope, &state, name)?;
    let mut open = vec![first];
    while let Some(module) = open.pop() {
        for specifier in requests(scope, module) {
            let held = v8::Global::new(scope, module);
            if let Some(new) = follow(scope, &state, &held, &specifier)? {
                open.push(new);
            }
        }
    }
    Ok(first)
}

pub(crate) fn requests(
    scope: &mut v8::PinScope<'_, '_>,
    module: v8::Local<v8::Module>,
) -> Vec<String> {
    let requests = module.get_module_requests();
    (0..requests.length())
        .filter_map(|index| requests.get(scope, index))
        .filter_map(|request| v8::Local::<v8::ModuleRequest>::try_from(request).ok())
        .map(|request| request.get_specifier().to_rust_string_lossy(scope))
        .collect()
}

/// Notes which module an import means, and compiles it where it is new.
fn follow<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &Rc<State>,
    referrer: &v8::Global<v8::Module>,
    specifier: &str,
) -> Result<Option<v8::Local<'s, v8::Module>>, EngineError> {
    let from = state.modules.borrow().url(referrer).unwrap_or_default();
    let name = match loader(state).resolve(specifier, &from) {
        Ok(name) => name,
        Err(error) => return Err(throw(scope, &error)),
    };
    let known = state.modules.borrow().by_name.contains_key(&name);
    state
        .modules
        .borrow_mut()
        .imports
        .insert((referrer.clone(), specifier.to_owned()), name.clone());
    if known {
        return Ok(None);
    }
    compile(scope, state, &name).map(Some)
}

fn compile<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &Rc<State>,
    name: &str,
) -> Result<v8::Local<'s, v8::Module>, EngineError> {
    if let Some(module) = state.modules.borrow().by_name.get(name) {
        return Ok(v8::Local::new(scope, module));
    }
    let source = match loader(state).load(name) {
        Ok(source) => source,
        Err(error) => return Err(throw(scope, &error)),
    };
    let module = catch(scope, |scope| {
        let source = v8::String::new(scope, &source)?;
        let origin = origin(scope, name, Kind::Module)?;
        let mut source = v8::script_compiler::Source::new(source, Some(&origin));
        v8::script_compiler::compile_module(scope, &mut source)
    })?;
    let held = v8::Global::new(scope, module);
    let mut modules = state.modules.borrow_mut();
    modules.by_name.insert(name.to_owned(), held.clone());
    modules.names.insert(held, name.to_owned());
    Ok(module)
}

/// Used where no loader was given.
struct NoModules;

impl Loader for NoModules {
    fn resolve(&self, specifier: &str, _referrer: &str) -> Result<String, Thrown> {
        Err(Thrown::type_error(format!(
            "there is no module {specifier:?} here: bundle what is needed into the one file"
        )))
    }

    fn load(&self, name: &str) -> Result<String, Thrown> {
        Err(Thrown::type_error(format!(
            "there is no module {name:?} here: bundle what is needed into the one file"
        )))
    }
}

fn loader(state: &State) -> Rc<dyn Loader> {
    let loader = state.modules.borrow().loader.clone();
    loader.unwrap_or_else(|| Rc::new(NoModules))
}

fn throw(scope: &mut v8::PinScope<'_, '_>, error: &Thrown) -> EngineError {
    let exception = error.to_exception(scope);
    EngineError::Thrown(describe(scope, exception, None))
}

/// `import(…)` at run time.
pub(crate) fn import_dynamically<'s, 'i>(
    scope: &mut v8::PinScope<'s, 'i>,
    _options: v8::Local<'s, v8::Data>,
    referrer: v8::Local<'s, v8::Value>,
    specifier: v8::Local<'s, v8::String>,
    _attributes: v8::Local<'s, v8::FixedArray>,
) -> Option<v8::Local<'s, v8::Promise>> {
    let state = Rc::clone(State::of(scope));
    let specifier = specifier.to_rust_string_lossy(scope);
    let referrer = referrer.to_rust_string_lossy(scope);
    match import(scope, &state, &specifier, &referrer) {
        Ok((namespace, evaluated)) => {
            let evaluated = v8::Local::<v8::Promise>::try_from(evaluated).ok()?;
            let then = v8::Function::builder(import_ran)
                .data(namespace)
                .build(scope)?;
            evaluated.then(scope, then)
        }
        Err(error) => {
            let resolver = v8::PromiseResolver::new(scope)?;
            let exception = crate::functions::thrown(&error).to_exception(scope);
            resolver.reject(scope, exception);
            Some(resolver.get_promise(scope))
        }
    }
}

/// What an import's promise is fulfilled with, once the module has run.
fn import_ran(
    _scope: &mut v8::PinScope,
    arguments: v8::FunctionCallbackArguments,
    mut result: v8::ReturnValue,
) {
    result.set(arguments.data());
}

type Imported<'s> = (v8::Local<'s, v8::Value>, v8::Local<'s, v8::Value>);

fn import<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &Rc<State>,
    specifier: &str,
    referrer: &str,
) -> Result<Imported<'s>, EngineError> {
    let name = match loader(state).resolve(specifier, referrer) {
        Ok(name) => name,
        Err(error) => return Err(throw(scope, &error)),
    };
    let module = load_graph(scope, &name)?;
    let evaluated = run(scope, module)?;
    Ok((module.get_module_namespace(), evaluated))
}
