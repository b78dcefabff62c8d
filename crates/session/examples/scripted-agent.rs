//! The scripted agent alone, called as the whole program calls it: `agent scripted FILE`. The session's tests show it
//! inside sandboxes where the program itself would be.

use std::{path::PathBuf, process::ExitCode};

use bulkhead_session::scripted;

fn main() -> ExitCode {
    let file = PathBuf::from(std::env::args_os().next_back().unwrap_or_default());
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return ExitCode::FAILURE;
    };
    let run = scripted::run(&file, tokio::io::stdin(), tokio::io::stdout());
    let code = runtime.block_on(run);
    // The thread that reads standard input is not waited for.
    runtime.shutdown_background();
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
