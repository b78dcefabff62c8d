//! D8, H5: what spins or fills its memory is ended, and the isolate and its process go on.

use std::time::Duration;

use bulkhead_engine::{EngineError, Handle, Isolate, Value};

use crate::{block_on, both, isolate, options};

fn end_soon(handle: Handle) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        handle.terminate();
    })
}

both! {
    fn a_loop_is_ended_and_the_isolate_goes_on() {
        let mut isolate = isolate();
        let thread = end_soon(isolate.handle());
        let error = isolate.run("l.js", "1;\n  for (;;) {}").unwrap_err();
        let EngineError::Terminated(Some(place)) = error else { panic!("{error}") };
        assert_eq!((place.file.as_str(), place.line), ("l.js", 2));
        thread.join().unwrap();
        assert_eq!(isolate.run("l.js", "1 + 1").unwrap(), Value::Number(2.0));
    }

    fn a_loop_in_a_microtask_is_ended() {
        let mut isolate = isolate();
        let promise = isolate.evaluate("l.js", "(async () => { await null; for (;;) {} })()").unwrap();
        let thread = end_soon(isolate.handle());
        let error = block_on(isolate.settle(&promise)).unwrap_err();
        assert!(matches!(error, EngineError::Terminated(_)), "{error}");
        thread.join().unwrap();
    }

    fn a_loop_that_catches_everything_is_ended() {
        let mut isolate = isolate();
        let thread = end_soon(isolate.handle());
        let source = "function f() { for (;;) { try { f2() } catch {} finally { try { f2() } catch {} } } } function f2() { for (;;) {} } f()";
        let error = isolate.run("l.js", source).unwrap_err();
        assert!(matches!(error, EngineError::Terminated(_)), "{error}");
        thread.join().unwrap();
    }

    fn a_full_heap_ends_what_filled_it() {
        let mut isolate = isolate();
        let error = isolate.run("h.js", "const a = []; for (;;) a.push({ a: [1, 2, 3] })").unwrap_err();
        assert!(matches!(error, EngineError::HeapLimit), "{error}");
        assert_eq!(isolate.run("h.js", "1 + 1").unwrap(), Value::Number(2.0));
        let error = isolate.run("h.js", "const b = []; for (;;) b.push({ a: [1, 2, 3] })").unwrap_err();
        assert!(matches!(error, EngineError::HeapLimit), "{error}");
    }

    fn a_request_that_came_too_late_can_be_taken_back() {
        let mut isolate = isolate();
        isolate.handle().terminate();
        isolate.cancel_termination();
        assert_eq!(isolate.run("l.js", "1 + 1").unwrap(), Value::Number(2.0));
    }

    fn buffers_beyond_their_limit_end_what_filled_them() {
        let mut isolate = Isolate::new(&options());
        let count = "globalThis.kept = []; for (;;) kept.push(new Uint8Array(1 << 20))";
        let error = isolate.run("b.js", count).unwrap_err();
        assert!(matches!(error, EngineError::HeapLimit), "{error}");
        let count = isolate.run("b.js", "kept.length").unwrap().as_number().unwrap();
        assert!((60.0..=64.0).contains(&count), "{count}");
    }

    fn a_buffer_beyond_the_limit_throws() {
        let source = "try { new Uint8Array(65 << 20) } catch (e) { e instanceof RangeError }";
        assert_eq!(isolate().run("b.js", source).unwrap(), Value::Bool(true));
    }

    fn bytes_beyond_the_limit_do_not_enter() {
        let mut isolate = isolate();
        let echo = isolate.evaluate("b.js", "x => x.length").unwrap();
        let bytes = |mib: usize| Value::Bytes(vec![0; mib << 20].into());
        let error = isolate.call(&echo, &[bytes(65).into()]).unwrap_err();
        assert!(matches!(error, EngineError::Value(_)), "{error}");
        assert!(isolate.call(&echo, &[bytes(10).into()]).is_ok());
    }

    fn a_deep_recursion_is_an_error_with_a_place() {
        let error = isolate().run("r.js", "function f() { f() } f()").unwrap_err();
        assert!(error.to_string().starts_with("RangeError: Maximum call stack size exceeded (r.js:1:"), "{error}");
    }
}
