//! The `bulkhead-js` program: a session's process where the session has plugs in JavaScript or TypeScript.
//!
//! `bulkhead` starts it for such a session, in place of itself, with the same command and the session's socket as its
//! standard input. It is a program of its own because linking V8 costs every start of a program some milliseconds
//! and megabytes, and nothing else needs it.
//!
//! `bulkhead isolates` starts it as its zygote ([`bulkhead_js::invocations`]), which forks a process for each call of a plugin.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    process::ExitCode,
    sync::Arc,
};

use bulkhead_js::JsPlugs;

const USAGE: &str = "bulkhead-js runs sessions and plugins for bulkhead, which starts it; there is nothing to start by hand.\n\
                     usage: bulkhead-js session-worker   (the session's socket is its standard input)\n\
                     \x20      bulkhead-js zygote …         (the broker's socket is its standard input)\n\
                     \x20      bulkhead-js --version\n";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["session-worker"] => worker(),
        [bulkhead_zygote::MODE, words @ ..] => zygote(words),
        ["--version"] => {
            say(
                &format!("bulkhead-js {}\n", env!("CARGO_PKG_VERSION")),
                std::io::stdout(),
            );
            ExitCode::SUCCESS
        }
        _ => {
            say(USAGE, std::io::stderr());
            ExitCode::from(2)
        }
    }
}

/// Where nobody can be told any more, there is nothing to do.
fn say(words: &str, mut to: impl std::io::Write) {
    let _ = to.write_all(words.as_bytes());
    let _ = to.flush();
}

fn worker() -> ExitCode {
    match carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&*error);
            ExitCode::FAILURE
        }
    }
}

/// Nothing may have made a thread yet.
fn zygote(words: &[&str]) -> ExitCode {
    let options = match bulkhead_zygote::Options::parse(words) {
        Ok(options) => options,
        Err(usage) => {
            complain(&usage);
            return ExitCode::from(2);
        }
    };
    bulkhead_zygote::run(&options, bulkhead_js::invocations::load).unwrap_or_else(|fault| {
        complain(&fault);
        fault.exit_code()
    })
}

fn complain(error: &dyn std::error::Error) {
    let mut words = format!("bulkhead-js: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    say(&format!("{words}\n"), std::io::stderr());
}

fn carry_out() -> Result<(), Box<dyn std::error::Error>> {
    let stdin = std::io::stdin();
    let socket = BorrowedFd::try_clone_to_owned(&stdin.as_fd())?;
    let plugs = JsPlugs::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(bulkhead_session::run_worker(socket, Arc::new(plugs)))?;
    Ok(())
}
