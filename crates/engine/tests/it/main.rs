//! What the engine promises, with machine code and without (`--jitless`, as untrusted code runs, D8).
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use bulkhead_engine::{
    Compilation, Isolate, IsolateOptions, Language, Options, StringsAsCode, Threads,
};

mod limits;
mod modules;
mod snapshots;
mod turns;
mod values;

/// Starts V8. The options are the process's, so every test is a process of its own: nextest sees to that.
fn start(compilation: Compilation) {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.v8/lib/icudtl.dat");
    let options = Options {
        compilation,
        threads: Threads::Own,
        language: Language::Newest,
        icu_data: Some(data.into()),
    };
    bulkhead_engine::start(&options).unwrap();
}

fn isolate() -> Isolate {
    Isolate::new(&options())
}

fn options() -> IsolateOptions {
    IsolateOptions {
        strings_as_code: StringsAsCode::Refused,
        ..IsolateOptions::default()
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Makes two tests of each body: one with V8's compilers, one with `--jitless`.
macro_rules! both {
    ($($(#[$attribute:meta])* fn $name:ident() $body:block)*) => {
        mod jit {
            $($(#[$attribute])* #[test] fn $name() {
                crate::start(bulkhead_engine::Compilation::Jit);
                super::$name();
            })*
        }
        mod jitless {
            $($(#[$attribute])* #[test] fn $name() {
                crate::start(bulkhead_engine::Compilation::Jitless);
                super::$name();
            })*
        }
        $(fn $name() $body)*
    };
}
use both;
