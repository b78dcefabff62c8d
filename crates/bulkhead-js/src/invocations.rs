//! What the zygote of this program has in it: V8, and an isolate for the next call of a plugin.

use std::fs::File;

use bulkhead_invocation::{Options, Prepared, Template, on_fatal_memory, start};
use bulkhead_zygote::{Guest, Isolate, LoadError, Pipe};

use crate::runtime_files::icu_data;

/// An isolate that every forked process has a copy of.
struct Copied(Prepared);

/// Each forked process makes its own.
struct Own(Template);

impl Guest for Copied {
    fn serve(self: Box<Self>, pipe: Pipe) {
        serve(self.0, pipe);
    }
}

impl Guest for Own {
    fn serve(self: Box<Self>, pipe: Pipe) {
        // Without an isolate the process ends without `Ready`, and the broker sees that.
        if let Ok(prepared) = self.0.prepare() {
            serve(prepared, pipe);
        }
    }
}

fn serve(prepared: Prepared, pipe: Pipe) {
    on_fatal_memory(pipe.last_words);
    // Whoever could be told of a broken pipe is at its other end.
    let _ = prepared.serve(File::from(pipe.stream));
}

/// Starts V8 and makes what processes are forked with.
pub fn load(options: &bulkhead_zygote::Options) -> Result<Box<dyn Guest>, LoadError> {
    start(Some(icu_data()?))?;
    let limits = Options {
        heap_bytes_max: usize::try_from(options.memory_mib)? << 20,
        ..Options::default()
    };
    let guest: Box<dyn Guest> = match options.isolate {
        Isolate::Ready => Box::new(Copied(Prepared::new(&limits)?)),
        Isolate::Child => Box::new(Own(Template::new(limits)?)),
    };
    Ok(with_hooks(options, guest))
}

/// The escape test wants the zygote as it is, and in its processes somebody who makes the calls that it asks for.
#[cfg(debug_assertions)]
fn with_hooks(options: &bulkhead_zygote::Options, guest: Box<dyn Guest>) -> Box<dyn Guest> {
    struct Probed(#[expect(dead_code, reason = "it is there to be in memory")] Box<dyn Guest>);
    impl Guest for Probed {
        fn serve(self: Box<Self>, pipe: Pipe) {
            Box::new(bulkhead_zygote::probe::Prober).serve(pipe);
        }
    }
    match options.test_hooks {
        bulkhead_zygote::TestHooks::Present => Box::new(Probed(guest)),
        bulkhead_zygote::TestHooks::Absent => guest,
    }
}

#[cfg(not(debug_assertions))]
fn with_hooks(_: &bulkhead_zygote::Options, guest: Box<dyn Guest>) -> Box<dyn Guest> {
    guest
}
