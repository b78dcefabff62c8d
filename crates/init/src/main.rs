//! `bulkhead-init`: the small processes that stand around a sandbox's payload.
//!
//! ```text
//! parent (async, many threads) ──exec, once──▶ nursery ──fork──▶ launcher ──clone3──▶ PID 1 ──fork+exec──▶ payload
//!   fd 0 of the launcher: Control / Report                        │ cgroups, maps, clock, kill, removal
//!   fd 1 of the launcher: Request / Event  ─────────────────────────────────────▶│ mounts, rights, processes, reaping
//! ```
//!
//! One static program from a sealed memory file, single-threaded, with no environment: what to do comes over sockets. It
//! decides nothing; the plan says each file, mount and limit.
//!
//! With an argument it is something else, which belongs to no sandbox:
//!
//! | argument | what it is |
//! |---|---|
//! | `files` | serves files on its input and output ([`files`]) |
//! | `connect`, `pipe`, `listen` | carry streams to and from ports and sockets ([`forward`]) |
//! | `hold` | keeps a host's processes in a container, or behind walls on another machine ([`hold`]) |
//! | `keeper` | starts and ends processes on the runner's own machine ([`keeper`]) |
#![expect(
    unsafe_code,
    reason = "this program is made of system calls that no safe wrapper without dependencies has"
)]

mod cgroup;
mod examine;
mod files;
mod forward;
mod hold;
mod keeper;
mod launcher;
mod link;
mod mounts;
mod network;
mod nursery;
mod pid1;
mod probe;
mod serve;
mod spawn;
mod terminal;
mod tree;

use std::process::ExitCode;

use bulkhead_init::{landlock, rights, sys};

/// The exit codes are for people who read process accounts; the parent reads the reports.
fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let mode = arguments.next();
    let done = match mode.as_ref().map(|mode| mode.as_encoded_bytes()) {
        None => nursery::run(&parent()),
        Some(b"hold") => hold::run(number(arguments.next())),
        Some(b"keeper") => keeper::run(&parent()),
        Some(other) => {
            let arguments = arguments.map(std::ffi::OsString::into_encoded_bytes);
            perform(
                &std::iter::once(other.to_vec())
                    .chain(arguments)
                    .collect::<Vec<_>>(),
            )
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The modes that speak on input and output only, for which a copy of PID 1 serves as well as a new process.
fn perform(arguments: &[Vec<u8>]) -> std::io::Result<()> {
    match arguments {
        [mode] if mode == b"files" => files::run(),
        [mode, to] if mode == b"connect" => forward::connect(to),
        [mode, to] if mode == b"pipe" => forward::pipe(to),
        [mode, at] if mode == b"listen" => forward::listen(at),
        _ => Err(std::io::ErrorKind::InvalidInput.into()),
    }
}

fn parent() -> link::Link {
    // SAFETY: the parent's contract is that 0 is its link, and nothing else here owns it; `main` asks once.
    unsafe { link::Link::from_raw(0) }
}

/// -1 where there is none.
fn number(argument: Option<std::ffi::OsString>) -> i32 {
    let text = argument.and_then(|argument| argument.into_string().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(-1)
}
