//! Starts V8, once for the process.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use crate::raw;

/// Whether V8 may make machine code. Without it, no page of the process is ever both writable and executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compilation {
    Jit,
    /// Interpreted only. Costs nothing on short calls, and some four times the time on long loops.
    Jitless,
}

/// Whether V8 may have threads of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// For what may be late: collecting garbage, and compiling what runs often.
    Own,
    /// None at all, so that the process may fork after V8 has started.
    None,
}

/// Which language the isolates speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// All that V8 ships.
    Newest,
    /// Nothing newer than what V8 cannot leave out: its switchable features are off.
    Oldest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub compilation: Compilation,
    pub threads: Threads,
    pub language: Language,
    /// The file `icudtl.dat`; without it `Intl` and local dates know no language and no time zone.
    pub icu_data: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("V8 was started in this process before, with other options")]
    OtherOptions,
    #[error("V8 cannot use the language data in {0}: is it the file that came with its library?")]
    IcuData(PathBuf),
}

static STARTED: Mutex<Option<Options>> = Mutex::new(None);

/// Starts V8. A second call with the same options does nothing.
pub fn start(options: &Options) -> Result<(), StartError> {
    let mut started = STARTED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    match &*started {
        Some(before) if before == options => return Ok(()),
        Some(_) => return Err(StartError::OtherOptions),
        None => {}
    }
    if let Some(path) = &options.icu_data {
        start_icu(path)?;
    }
    v8::V8::set_flags_from_string(&flags(options));
    let platform = match options.threads {
        Threads::Own => v8::new_unprotected_default_platform(0, false),
        Threads::None => v8::new_single_threaded_default_platform(false),
    };
    v8::V8::initialize_platform(platform.make_shared());
    v8::V8::initialize();
    raw::hear_of_fatal_errors();
    *started = Some(options.clone());
    Ok(())
}

fn flags(options: &Options) -> String {
    let mut flags = Vec::new();
    if options.compilation == Compilation::Jitless {
        flags.push("--jitless");
    }
    if options.threads == Threads::None {
        flags.push("--single-threaded");
    }
    if options.language == Language::Oldest {
        flags.extend(["--no-js-shipping", "--no-harmony-shipping"]);
    }
    flags.join(" ")
}

fn start_icu(path: &Path) -> Result<(), StartError> {
    if path.is_file() && raw::init_icu(path) {
        return Ok(());
    }
    Err(StartError::IcuData(path.to_owned()))
}
