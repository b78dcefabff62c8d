//! The only unsafe code of the engine: what V8's interface hands out as bare pointers and bare callbacks.
#![expect(
    unsafe_code,
    reason = "V8 calls back by C functions, and has no safe interface for these"
)]

use std::{
    ffi::{CString, c_char, c_void},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    pin::pin,
    rc::Rc,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    error::current_place,
    isolate::{Ending, HeapGuard, State},
};

unsafe extern "C" {
    /// In `vendor/v8/shim.cc`, like the two after it.
    fn bulkhead_v8_init_icu(path: *const c_char) -> bool;
    fn bulkhead_v8_limited_allocator(limit: usize) -> *mut v8::Allocator;
    fn bulkhead_v8_limited_allocator_used(allocator: *const v8::Allocator) -> usize;
    /// V8's own `v8::base::SetPrintStackTrace`, for which the crate has no function.
    #[link_name = "_ZN2v84base18SetPrintStackTraceEPFvvE"]
    fn set_print_stack_trace(print: Option<unsafe extern "C" fn()>);
}

pub(crate) fn init_icu(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path ends with a zero byte and outlives the call, which keeps nothing of it.
    unsafe { bulkhead_v8_init_icu(path.as_ptr()) }
}

/// What gives array buffers their memory, and no more than a limit in all.
pub(crate) struct BufferMemory {
    allocator: v8::SharedRef<v8::Allocator>,
    limit: usize,
}

impl BufferMemory {
    pub(crate) fn new(limit: usize) -> Self {
        // SAFETY: the function returns a new allocator that nobody else owns.
        let allocator = unsafe { v8::UniquePtr::from_raw(bulkhead_v8_limited_allocator(limit)) };
        Self {
            allocator: allocator.unwrap().make_shared(),
            limit,
        }
    }

    pub(crate) fn allocator(&self) -> v8::SharedRef<v8::Allocator> {
        self.allocator.clone()
    }

    pub(crate) fn left(&self) -> usize {
        self.limit.saturating_sub(self.used())
    }

    pub(crate) fn used(&self) -> usize {
        // SAFETY: the allocator is alive, and it is one of ours: `new` is the only way to a value of this type.
        unsafe { bulkhead_v8_limited_allocator_used(&raw const *self.allocator) }
    }
}

/// Copies bytes into a buffer of the same length, which no JavaScript has seen yet.
pub(crate) fn fill(buffer: v8::Local<v8::ArrayBuffer>, bytes: &[u8]) {
    let Some(data) = buffer
        .data()
        .filter(|_| buffer.byte_length() == bytes.len())
    else {
        return;
    };
    // SAFETY: the buffer has this many bytes, they are nobody else's, and V8 moves no buffer's memory.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.as_ptr().cast::<u8>(), bytes.len())
    };
}

/// Lets `guard` end what runs when the heap is nearly full. The guard must be kept as long as the isolate.
pub(crate) fn guard_heap(isolate: &mut v8::Isolate, guard: &Arc<HeapGuard>) {
    let data = Arc::as_ptr(guard).cast_mut().cast::<c_void>();
    isolate.add_near_heap_limit_callback(near_heap_limit, data);
}

/// The same, and the limit, which was raised to let something end, is what it was.
pub(crate) fn guard_heap_again(isolate: &mut v8::Isolate, guard: &Arc<HeapGuard>, limit: usize) {
    isolate.remove_near_heap_limit_callback(near_heap_limit, limit);
    guard_heap(isolate, guard);
}

/// What is told when V8 is about to end the process because it can have no memory.
type LastWords = Box<dyn Fn() + Send + Sync>;

static LAST_WORDS: OnceLock<LastWords> = OnceLock::new();

/// Says what happens when V8 can have no memory, just before it ends the process; the first call counts. What happens
/// must neither use V8 nor ask for memory.
pub fn on_fatal_memory(last_words: impl Fn() + Send + Sync + 'static) {
    let _ = LAST_WORDS.set(Box::new(last_words));
}

pub(crate) fn hear_of_fatal_memory(isolate: &mut v8::Isolate) {
    isolate.set_oom_error_handler(fatal_memory);
}

/// What `on_fatal_memory` was given, once.
fn say_last_words() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if let Some(last_words) = LAST_WORDS.get()
        && !SAID.swap(true, Ordering::SeqCst)
    {
        last_words();
    }
}

/// Whether V8 found itself broken, which has nothing to do with memory.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// V8 has more than one way to end the process. Where it holds something impossible to be asked for, such as a list
/// longer than any can be (`"a".repeat(2 ** 28).split("")`), it tells nobody and only shows its stack, for which it
/// has a hook. Its hook for failed assertions comes first where one has failed.
pub(crate) fn hear_of_fatal_errors() {
    v8::V8::set_fatal_error_handler(assertion_failed);
    // SAFETY: V8 keeps the function, which is one for as long as the process.
    unsafe { set_print_stack_trace(Some(about_to_abort)) };
}

fn assertion_failed(_file: &str, _line: i32, _message: &str) {
    IS_BROKEN.store(true, Ordering::SeqCst);
}

unsafe extern "C" fn about_to_abort() {
    if !IS_BROKEN.load(Ordering::SeqCst) {
        say_last_words();
    }
}

unsafe extern "C" fn fatal_memory(_location: *const c_char, _details: &v8::OomDetails) {
    say_last_words();
}

unsafe extern "C" fn near_heap_limit(data: *mut c_void, current: usize, _initial: usize) -> usize {
    // SAFETY: `guard_heap` gave a pointer to a guard that its isolate's owner keeps longer than the isolate.
    let guard = unsafe { &*data.cast_const().cast::<HeapGuard>() };
    guard.near_limit(current)
}

/// Asks the isolate's thread to note where it is and to end what it runs.
pub(crate) fn interrupt(isolate: &v8::IsolateHandle, ending: &Arc<Ending>) {
    let data = Arc::into_raw(Arc::clone(ending));
    if !isolate.request_interrupt(end_here, data.cast_mut().cast::<c_void>()) {
        // SAFETY: the isolate is gone, so nobody else will take back what `into_raw` gave.
        drop(unsafe { Arc::from_raw(data) });
    }
}

unsafe extern "C" fn end_here(isolate: v8::UnsafeRawIsolatePtr, data: *mut c_void) {
    // SAFETY: `interrupt` gave this pointer to this one call.
    let ending = unsafe { Arc::from_raw(data.cast_const().cast::<Ending>()) };
    if !ending.is_wanted() {
        return;
    }
    // SAFETY: V8 calls this on the isolate's thread with the isolate entered, and the scope does not outlive the call.
    let mut isolate = unsafe { v8::Isolate::from_raw_isolate_ptr(isolate) };
    let place = {
        // SAFETY: as above.
        let scope = pin!(unsafe { v8::CallbackScope::new(&mut isolate) });
        let scope = &mut scope.init();
        let state = scope.get_slot::<Rc<State>>().cloned();
        let context = state.and_then(|state| state.context.borrow().clone());
        context.and_then(|context| {
            let context = v8::Local::new(scope, context);
            let scope = &mut v8::ContextScope::new(scope, context);
            current_place(scope)
        })
    };
    ending.was_at(place);
    isolate.terminate_execution();
}

/// Notes promises that are rejected while nobody listens, and those that somebody listened to after all.
pub(crate) unsafe extern "C" fn promise_rejected(message: v8::PromiseRejectMessage) {
    // SAFETY: V8 calls this with the isolate entered, and the scope does not outlive the call.
    let scope = pin!(unsafe { v8::CallbackScope::new(&message) });
    let scope = &mut scope.init();
    let Some(state) = scope.get_slot::<Rc<State>>().cloned() else {
        return;
    };
    let promise = v8::Global::new(scope, message.get_promise());
    match message.get_event() {
        v8::PromiseRejectEvent::PromiseRejectWithNoHandler => {
            if let Some(value) = message.get_value() {
                let value = v8::Global::new(scope, value);
                state.rejections.borrow_mut().push((promise, value));
            }
        }
        v8::PromiseRejectEvent::PromiseHandlerAddedAfterReject => {
            let mut rejections = state.rejections.borrow_mut();
            rejections.retain(|(rejected, _)| *rejected != promise);
        }
        _ => {}
    }
}

/// Answers V8's question which module an import means, from the graph that was loaded before.
pub(crate) fn resolve_import<'s>(
    context: v8::Local<'s, v8::Context>,
    specifier: v8::Local<'s, v8::String>,
    _attributes: v8::Local<'s, v8::FixedArray>,
    referrer: v8::Local<'s, v8::Module>,
) -> Option<v8::Local<'s, v8::Module>> {
    // SAFETY: V8 calls this with the context's isolate entered, and the scope does not outlive the call.
    let scope = pin!(unsafe { v8::CallbackScope::new(context) });
    let scope = &mut scope.init();
    let state = scope.get_slot::<Rc<State>>().cloned()?;
    let specifier = specifier.to_rust_string_lossy(scope);
    let referrer = v8::Global::new(scope, referrer);
    let module = state.modules.borrow().resolved(&referrer, &specifier)?;
    Some(v8::Local::new(scope, module))
}

/// Fills `import.meta` of a module with its `url`.
pub(crate) unsafe extern "C" fn fill_import_meta(
    context: v8::Local<v8::Context>,
    module: v8::Local<v8::Module>,
    meta: v8::Local<v8::Object>,
) {
    // SAFETY: V8 calls this with the context's isolate entered, and the scope does not outlive the call.
    let scope = pin!(unsafe { v8::CallbackScope::new(context) });
    let scope = &mut scope.init();
    let Some(state) = scope.get_slot::<Rc<State>>().cloned() else {
        return;
    };
    let module = v8::Global::new(scope, module);
    let Some(url) = state.modules.borrow().url(&module) else {
        return;
    };
    let (Some(key), Some(url)) = (v8::String::new(scope, "url"), v8::String::new(scope, &url))
    else {
        return;
    };
    meta.create_data_property(scope, key.into(), url.into());
}
