//! One JavaScript world.

use std::{
    cell::RefCell,
    collections::HashMap,
    pin::pin,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::stream::FuturesUnordered;

use crate::{
    Argument, EngineError, JsError, JsonLimits, Native, Place, Reference, Snapshot, Value,
    error::{catch, describe},
    modules::Modules,
    raw,
    turns::Completion,
};

/// What the heap may grow beyond its limit while what runs is being ended: without room the process aborts.
const HEADROOM_BYTES: usize = 64 << 20;

/// Whether `eval` and `new Function` make code of strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StringsAsCode {
    Allowed,
    Refused,
}

/// Whose code runs in the isolate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The user's own: it may shape its stacks, and errors are read as it shows them.
    User,
    /// Anybody's: `Error.prepareStackTrace` does nothing, and errors are read without running any of its code.
    Nobody,
}

#[derive(Debug, Clone)]
pub struct IsolateOptions {
    /// What the isolate begins with; a bare engine where there is none.
    pub snapshot: Option<Snapshot>,
    /// Of the JavaScript heap. What runs when it is reached ends with [`EngineError::HeapLimit`].
    pub heap_limit_bytes: usize,
    /// Of all array buffers together: one that is larger is a `RangeError`, and many that are together end what runs
    /// with [`EngineError::HeapLimit`].
    pub buffer_limit_bytes: usize,
    pub strings_as_code: StringsAsCode,
    pub trust: Trust,
}

impl Default for IsolateOptions {
    fn default() -> Self {
        Self {
            snapshot: None,
            heap_limit_bytes: 128 << 20,
            buffer_limit_bytes: 64 << 20,
            strings_as_code: StringsAsCode::Refused,
            trust: Trust::User,
        }
    }
}

/// How many functions of a stack are kept.
const STACK_FRAMES: i32 = 32;

/// Ends what runs in an isolate, from any thread.
#[derive(Clone)]
pub struct Handle {
    isolate: v8::IsolateHandle,
    ending: Arc<Ending>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// A request to end what runs, and where that was.
#[derive(Default)]
pub(crate) struct Ending {
    wanted: AtomicBool,
    place: Mutex<Option<Place>>,
}

impl Ending {
    /// Whether it is still wanted; a request that was taken back is passed over.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    pub(crate) fn was_at(&self, place: Option<Place>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }

    fn take_place(&self) -> Option<Place> {
        self.wanted.store(false, Ordering::SeqCst);
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.take()
    }
}

impl Handle {
    /// What runs now, or next, ends with [`EngineError::Terminated`]. Afterwards the isolate can be used again.
    pub fn terminate(&self) {
        self.ending.wanted.store(true, Ordering::SeqCst);
        raw::interrupt(&self.isolate, &self.ending);
    }
}

/// Ends what runs when the heap is nearly full.
pub(crate) struct HeapGuard {
    isolate: v8::IsolateHandle,
    reached: AtomicBool,
}

impl HeapGuard {
    /// The new limit. Called by V8, in the middle of a garbage collection.
    pub(crate) fn near_limit(&self, current: usize) -> usize {
        self.reached.store(true, Ordering::SeqCst);
        self.isolate.terminate_execution();
        current.saturating_add(HEADROOM_BYTES)
    }
}

/// What callbacks find through the isolate.
pub(crate) struct State {
    pub(crate) functions: RefCell<Vec<Rc<Native>>>,
    pub(crate) modules: RefCell<Modules>,
    pub(crate) under_way: RefCell<FuturesUnordered<Completion>>,
    pub(crate) resolvers: RefCell<HashMap<u64, v8::Global<v8::PromiseResolver>>>,
    pub(crate) rejections: RefCell<Vec<(v8::Global<v8::Promise>, v8::Global<v8::Value>)>>,
    pub(crate) context: RefCell<Option<v8::Global<v8::Context>>>,
    pub(crate) trust: Trust,
    buffers: Option<raw::BufferMemory>,
}

impl State {
    pub(crate) fn new(buffers: Option<raw::BufferMemory>, trust: Trust) -> Rc<Self> {
        Rc::new(Self {
            functions: RefCell::default(),
            modules: RefCell::default(),
            under_way: RefCell::default(),
            resolvers: RefCell::default(),
            rejections: RefCell::default(),
            context: RefCell::default(),
            trust,
            buffers,
        })
    }

    /// The state of the isolate that is entered.
    #[expect(
        clippy::expect_used,
        reason = "every isolate of this crate is given its state before anything runs in it"
    )]
    pub(crate) fn of(isolate: &v8::Isolate) -> &Rc<Self> {
        isolate
            .get_slot::<Rc<Self>>()
            .expect("the isolate has its state")
    }

    pub(crate) fn buffers_left(&self) -> usize {
        self.buffers
            .as_ref()
            .map_or(usize::MAX, raw::BufferMemory::left)
    }

    fn buffers_used(&self) -> usize {
        self.buffers.as_ref().map_or(0, raw::BufferMemory::used)
    }

    fn clear(&self) {
        self.functions.borrow_mut().clear();
        self.modules.take();
        self.under_way.borrow_mut().clear();
        self.resolvers.borrow_mut().clear();
        self.rejections.borrow_mut().clear();
        self.context.take();
    }
}

/// One JavaScript world, on the thread that made it. A thread drops its isolates in the reverse order of making them.
pub struct Isolate {
    context: v8::Global<v8::Context>,
    state: Rc<State>,
    isolate: v8::OwnedIsolate,
    /// After the isolate: V8 may ask it until the isolate is gone.
    guard: Arc<HeapGuard>,
    ending: Arc<Ending>,
    heap_limit_bytes: usize,
}

impl std::fmt::Debug for Isolate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Isolate").finish_non_exhaustive()
    }
}

impl Drop for Isolate {
    fn drop(&mut self) {
        self.state.clear();
    }
}

impl Isolate {
    /// Makes an isolate. V8 must have been started: [`crate::start`].
    pub fn new(options: &IsolateOptions) -> Self {
        let buffers = raw::BufferMemory::new(options.buffer_limit_bytes);
        let mut parameters = v8::CreateParams::default()
            .heap_limits(0, options.heap_limit_bytes)
            .allow_atomics_wait(false)
            .array_buffer_allocator(buffers.allocator());
        if let Some(snapshot) = &options.snapshot {
            parameters = parameters.snapshot_blob(snapshot.data());
        }
        let mut isolate = v8::Isolate::new(parameters);
        let guard = Arc::new(HeapGuard {
            isolate: isolate.thread_safe_handle(),
            reached: AtomicBool::new(false),
        });
        raw::guard_heap(&mut isolate, &guard);
        raw::hear_of_fatal_memory(&mut isolate);
        if options.trust == Trust::Nobody {
            isolate.set_prepare_stack_trace_callback(crate::bare::stack_text);
            isolate.set_capture_stack_trace_for_uncaught_exceptions(true, STACK_FRAMES);
        }
        let state = State::new(Some(buffers), options.trust);
        isolate.set_slot(Rc::clone(&state));
        isolate.set_microtasks_policy(v8::MicrotasksPolicy::Explicit);
        isolate.set_promise_reject_callback(raw::promise_rejected);
        isolate.set_host_initialize_import_meta_object_callback(raw::fill_import_meta);
        isolate.set_host_import_module_dynamically_callback(crate::modules::import_dynamically);
        let context = new_context(&mut isolate, options.strings_as_code);
        *state.context.borrow_mut() = Some(context.clone());
        Self {
            context,
            state,
            isolate,
            guard,
            ending: Arc::default(),
            heap_limit_bytes: options.heap_limit_bytes,
        }
    }

    pub fn handle(&self) -> Handle {
        Handle {
            isolate: self.isolate.thread_safe_handle(),
            ending: Arc::clone(&self.ending),
        }
    }

    pub(crate) fn state(&self) -> &Rc<State> {
        &self.state
    }

    pub(crate) fn inner(&mut self) -> &mut v8::OwnedIsolate {
        &mut self.isolate
    }

    /// Enters the context.
    pub(crate) fn with<R>(
        &mut self,
        run: impl for<'s, 'i> FnOnce(&mut v8::PinScope<'s, 'i>) -> R,
    ) -> R {
        let scope = pin!(v8::HandleScope::new(&mut self.isolate));
        let scope = &mut scope.init();
        let context = v8::Local::new(scope, &self.context);
        let scope = &mut v8::ContextScope::new(scope, context);
        run(scope)
    }

    /// Runs a script and copies its result out.
    pub fn run(&mut self, name: &str, source: &str) -> Result<Value, EngineError> {
        let reference = self.evaluate(name, source)?;
        self.value(&reference)
    }

    /// Runs a script and holds its result.
    pub fn evaluate(&mut self, name: &str, source: &str) -> Result<Reference, EngineError> {
        let outcome = self.with(|scope| {
            catch(scope, |scope| {
                let source = v8::String::new(scope, source)?;
                let origin = origin(scope, name, Kind::Script)?;
                let script = v8::Script::compile(scope, source, Some(&origin))?;
                let result = script.run(scope)?;
                Some(Reference(v8::Global::new(scope, result)))
            })
        });
        self.outcome(outcome)
    }

    /// Calls a function, with no `this`.
    pub fn call(
        &mut self,
        function: &Reference,
        arguments: &[Argument],
    ) -> Result<Reference, EngineError> {
        let outcome = self.with(|scope| {
            let arguments = arguments
                .iter()
                .map(|argument| argument.to_v8(scope))
                .collect::<Result<Vec<_>, _>>()?;
            let function = v8::Local::new(scope, &function.0);
            let function = v8::Local::<v8::Function>::try_from(function)
                .map_err(|_| EngineError::Value("it is no function".into()))?;
            catch(scope, |scope| {
                let nothing = v8::undefined(scope).into();
                let result = function.call(scope, nothing, &arguments)?;
                Some(Reference(v8::Global::new(scope, result)))
            })
        });
        self.outcome(outcome)
    }

    /// A property of an object; `undefined` where there is none.
    pub fn get(&mut self, object: &Reference, name: &str) -> Result<Reference, EngineError> {
        let outcome = self.with(|scope| {
            let object = v8::Local::new(scope, &object.0);
            let object = v8::Local::<v8::Object>::try_from(object)
                .map_err(|_| EngineError::Value("it is no object".into()))?;
            catch(scope, |scope| {
                let name = v8::String::new(scope, name)?;
                let value = object.get(scope, name.into())?;
                Some(Reference(v8::Global::new(scope, value)))
            })
        });
        self.outcome(outcome)
    }

    /// Writes a value as JSON, by the table in `docs/plugins/values.md`. `root` is what the value is called where
    /// something about it is wrong.
    pub fn to_json(
        &mut self,
        reference: &Reference,
        root: &str,
        limits: &JsonLimits,
    ) -> Result<String, EngineError> {
        let outcome = self.with(|scope| {
            let value = v8::Local::new(scope, &reference.0);
            crate::json::write(scope, value, root, limits)
        });
        self.outcome(outcome)
    }

    /// Makes the value that a JSON text means.
    pub fn from_json(
        &mut self,
        text: &str,
        root: &str,
        limits: &JsonLimits,
    ) -> Result<Reference, EngineError> {
        let outcome = self.with(|scope| {
            let value = crate::json::read(scope, text, root, limits)?;
            Ok(Reference(v8::Global::new(scope, value)))
        });
        self.outcome(outcome)
    }

    /// What kind of value it is, without running any code.
    pub fn shape(&mut self, reference: &Reference) -> Shape {
        self.with(|scope| {
            let value = v8::Local::new(scope, &reference.0);
            if value.is_function() {
                Shape::Function
            } else if value.is_object() {
                Shape::Object
            } else {
                Shape::Other
            }
        })
    }

    /// The names of an object's own enumerable properties, and their values; what has a getter is left out, so that
    /// no code runs. No more than `most` of them.
    pub fn own_properties(
        &mut self,
        reference: &Reference,
        most: u32,
    ) -> Result<Vec<(String, Reference)>, EngineError> {
        let outcome = self.with(|scope| {
            let value = v8::Local::new(scope, &reference.0);
            crate::value::own_properties(scope, value, most)
        });
        self.outcome(outcome)
    }

    /// An object's own property; none where there is no such. A getter runs.
    pub fn own_property(
        &mut self,
        object: &Reference,
        name: &str,
    ) -> Result<Option<Reference>, EngineError> {
        let outcome = self.with(|scope| {
            let object = v8::Local::new(scope, &object.0);
            let Ok(object) = v8::Local::<v8::Object>::try_from(object) else {
                return Ok(None);
            };
            catch(scope, |scope| {
                let name = v8::String::new(scope, name)?;
                if !object.has_own_property(scope, name.into())? {
                    return Some(None);
                }
                let value = object.get(scope, name.into())?;
                Some(Some(Reference(v8::Global::new(scope, value))))
            })
        });
        self.outcome(outcome)
    }

    /// What `await` would wait for: a promise as it is; what has a method `then` made into a promise. A proxy is given
    /// back as it is, and asked nothing: it is no data in any case.
    pub fn awaited(&mut self, value: &Reference) -> Result<Reference, EngineError> {
        let outcome = self.with(|scope| {
            let value = v8::Local::new(scope, &value.0);
            if value.is_promise() || value.is_proxy() || !value.is_object() {
                return Ok(Reference(v8::Global::new(scope, value)));
            }
            catch(scope, |scope| {
                let resolver = v8::PromiseResolver::new(scope)?;
                resolver.resolve(scope, value)?;
                let promise: v8::Local<v8::Value> = resolver.get_promise(scope).into();
                Some(Reference(v8::Global::new(scope, promise)))
            })
        });
        self.outcome(outcome)
    }

    /// Copies a value out.
    pub fn value(&mut self, reference: &Reference) -> Result<Value, EngineError> {
        let outcome = self.with(|scope| {
            let value = v8::Local::new(scope, &reference.0);
            Value::from_v8(scope, value)
        });
        self.outcome(outcome)
    }

    /// What promises were rejected with while nobody listened, and nobody has since. Each is said once.
    pub fn take_unhandled(&mut self) -> Vec<JsError> {
        let rejections = self.state.rejections.take();
        self.with(|scope| {
            rejections
                .iter()
                .map(|(_, value)| {
                    let value = v8::Local::new(scope, value);
                    describe(scope, value, None)
                })
                .collect()
        })
    }

    /// How many bytes all array buffers have together.
    pub fn buffers_used_bytes(&self) -> usize {
        self.state.buffers_used()
    }

    /// How much of the heap is used, in bytes.
    pub fn heap_used_bytes(&mut self) -> usize {
        self.isolate.get_heap_statistics().used_heap_size()
    }

    /// Takes back a [`Handle::terminate`] that came too late to end anything, so that it does not end what runs next.
    pub fn cancel_termination(&mut self) {
        self.ending.take_place();
        self.isolate.cancel_terminate_execution();
    }

    /// Says why something ended, and makes the isolate usable again where it can be.
    pub(crate) fn outcome<R>(&mut self, outcome: Result<R, EngineError>) -> Result<R, EngineError> {
        if self.guard.reached.swap(false, Ordering::SeqCst) {
            // Also where what ran ended by itself before the request to end reached it.
            self.isolate.cancel_terminate_execution();
            raw::guard_heap_again(&mut self.isolate, &self.guard, self.heap_limit_bytes);
            return Err(EngineError::HeapLimit);
        }
        if self.isolate.is_execution_terminating()
            || matches!(outcome, Err(EngineError::Terminated(_)))
        {
            self.isolate.cancel_terminate_execution();
            return Err(EngineError::Terminated(self.ending.take_place()));
        }
        outcome
    }
}

fn new_context(
    isolate: &mut v8::OwnedIsolate,
    strings_as_code: StringsAsCode,
) -> v8::Global<v8::Context> {
    let scope = pin!(v8::HandleScope::new(isolate));
    let scope = &mut scope.init();
    let context = v8::Context::new(scope, v8::ContextOptions::default());
    context.set_allow_generation_from_strings(strings_as_code == StringsAsCode::Allowed);
    v8::Global::new(scope, context)
}

/// What kind of value something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Function,
    Object,
    Other,
}

/// What a source is compiled as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Script,
    Module,
}

pub(crate) fn origin<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    name: &str,
    kind: Kind,
) -> Option<v8::ScriptOrigin<'s>> {
    let name = v8::String::new(scope, name)?;
    let is_module = kind == Kind::Module;
    Some(v8::ScriptOrigin::new(
        scope,
        name.into(),
        0,
        0,
        false,
        0,
        None,
        false,
        false,
        is_module,
        None,
    ))
}
