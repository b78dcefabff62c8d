//! What stands before an invocation begins: V8, an isolate that has run nobody's code, and `host` in it.

use std::{
    io::{Read, Write},
    mem::ManuallyDrop,
    path::PathBuf,
    rc::Rc,
};

use bulkhead_engine::{
    Compilation, EngineError, Isolate, IsolateOptions, Language, StartError, StringsAsCode,
    Threads, Trust,
};

use crate::{PipeError, bare, drive::Shared, host, pipe::Pipe, run};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Of V8's heap.
    pub heap_bytes_max: usize,
    /// Of all array buffers together.
    pub buffer_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            heap_bytes_max: 128 << 20,
            buffer_bytes_max: 64 << 20,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the isolate of an invocation cannot be made")]
pub struct PrepareError(#[from] EngineError);

/// Starts V8 as invocations need it: interpreting only, without threads, in the oldest language it can speak. Once in
/// a process, before anything else here.
pub fn start(icu_data: Option<PathBuf>) -> Result<(), StartError> {
    bulkhead_engine::start(&bulkhead_engine::Options {
        compilation: Compilation::Jitless,
        threads: Threads::None,
        language: Language::Oldest,
        icu_data,
    })
}

/// From which each process makes its isolate itself.
#[derive(Debug, Clone)]
pub struct Template {
    options: Options,
}

impl Template {
    /// Also makes V8 load what it loads once in a process, so that those who fork from here have it.
    pub fn new(options: Options) -> Result<Self, PrepareError> {
        drop(Prepared::new(&options)?);
        Ok(Self { options })
    }

    /// For the child, after the fork.
    pub fn prepare(&self) -> Result<Prepared, PrepareError> {
        Prepared::cold(&self.options)
    }
}

/// An isolate that has run nobody's code. It serves one invocation; there is no way to use it twice (T25).
#[derive(Debug)]
pub struct Prepared {
    isolate: Isolate,
    shared: Rc<Shared>,
}

impl Prepared {
    /// For the zygote, before the fork. Runs what loads lazily: dates, regular expressions, JSON, errors, ciphers.
    pub fn new(options: &Options) -> Result<Self, PrepareError> {
        let mut prepared = Self::cold(options)?;
        bare::warm_up(&mut prepared.isolate)?;
        Ok(prepared)
    }

    fn cold(options: &Options) -> Result<Self, PrepareError> {
        let mut isolate = Isolate::new(&IsolateOptions {
            snapshot: None,
            heap_limit_bytes: options.heap_bytes_max,
            buffer_limit_bytes: options.buffer_bytes_max,
            strings_as_code: StringsAsCode::Refused,
            trust: Trust::Nobody,
        });
        let shared = Rc::new(Shared::default());
        bare::strip(&mut isolate, &shared)?;
        isolate.install_frozen("host", host::namespace(&shared))?;
        Ok(Self { isolate, shared })
    }

    /// Serves one invocation: says that it is ready, reads what to do, and answers. Returns once `Done` is written;
    /// the process should then end, and need not tear anything down.
    pub fn serve(self, stream: impl Read + Write + 'static) -> Result<(), PipeError> {
        let Self { isolate, shared } = self;
        shared.begin(Pipe::new(stream));
        // What it holds is the process's to free, afterwards: the caller is not to wait for that.
        let mut isolate = ManuallyDrop::new(isolate);
        run::serve(&mut isolate, &shared)
    }
}
