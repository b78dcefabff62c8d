//! M rows, as far as V8's own limits go: better words, and no wall.

use std::{
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt as _},
    },
    process::{Command, Stdio},
};

use bulkhead_invocation::{Options, Prepared, on_fatal_memory};
use bulkhead_wire::pipe::{failure::Reason, start::Work};

use crate::support::{Seen, body, echo, run_of, serve_prepared, spawn_broker, start_of, start_v8};

/// With a heap of 24 MiB, which is sooner full.
fn in_little(body: &str) -> Seen {
    start_v8();
    let options = Options {
        heap_bytes_max: 24 << 20,
        ..Options::default()
    };
    let source = format!("export const handler = () => {{ {body} }}");
    let start = start_of(&source, Work::Run(run_of("handler", "1")));
    serve_prepared(Prepared::new(&options).unwrap(), start, echo)
}

/// M1, M3: a heap that is full ends the call with its own reason, in whatever way it was filled.
#[test]
fn m1_a_full_heap_is_said_to_be_full() {
    for source in [
        "const a = []; for (;;) a.push({ a: [1, 2, 3] })",
        "let s = 'x'; const a = []; for (;;) a.push(s += 'y'.repeat(1000), s.slice(1).replaceAll('y', 'z'))",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, { i })",
    ] {
        let seen = in_little(source);
        assert_eq!(
            seen.fails().0,
            Reason::HeapLimit,
            "{source}: {:?}",
            seen.failure()
        );
    }
}

/// M5, M6: buffers beyond their limit cannot be had.
#[test]
fn m6_a_buffer_beyond_the_limit_is_a_range_error() {
    for source in [
        "new ArrayBuffer(2e9)",
        "new Uint8Array(65 << 20)",
        "new ArrayBuffer(1, { maxByteLength: 2e9 }).resize(1e9)",
    ] {
        let seen = body(&format!(
            "try {{ {source}; return 'had' }} catch (e) {{ return e instanceof RangeError || e instanceof TypeError }}"
        ));
        assert_eq!(seen.result(), "true", "{source}");
    }
    let seen = body("const k = []; for (;;) k.push(new Uint8Array(1 << 20).fill(1))");
    assert!(
        [Reason::HeapLimit, Reason::Threw].contains(&seen.fails().0),
        "{:?}",
        seen.failure()
    );
}

/// M7, T19: nothing outside the heap can be had by other ways.
#[test]
fn m7_t19_there_is_no_other_memory() {
    let seen = body(
        "const tried = [() => new WebAssembly.Memory({ initial: 1 }), () => new SharedArrayBuffer(4),
            () => Atomics.wait(), () => new Intl.DateTimeFormat()];
         return tried.map((run) => { try { run() } catch (e) { return e.name } })",
    );
    assert_eq!(
        seen.result(),
        r#"["ReferenceError","ReferenceError","ReferenceError","ReferenceError"]"#
    );
}

/// Set where the process shall die.
const WANTED: &str = "BULKHEAD_TEST_DIES_OF_ONE_ALLOCATION";
const DIES: &str = "memory::dies_of_one_allocation";

/// M20, D8: where V8 can have no memory and ends the process, the process has said so before.
#[test]
fn m20_a_process_that_v8_ends_has_said_why() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let source = "export const handler = () => 'a'.repeat(2 ** 28).split('')";
    let start = start_of(source, Work::Run(run_of("handler", "1")));
    let broker = spawn_broker(theirs, start, echo);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", DIES])
        .env(WANTED, "1")
        .stdin(OwnedFd::from(ours))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(broker.join().unwrap().fails().0, Reason::HeapLimit);
    assert!(status.signal().is_some(), "{status}");
}

/// The process that the test above starts, with a pipe to it as its standard input.
#[test]
fn dies_of_one_allocation() {
    if std::env::var_os(WANTED).is_none() {
        return;
    }
    start_v8();
    let prepared = Prepared::new(&Options::default()).unwrap();
    let pipe = || std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    on_fatal_memory(pipe());
    prepared.serve(UnixStream::from(pipe())).unwrap();
}
