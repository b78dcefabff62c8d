//! `bulkhead-init`: the two small processes that stand around a sandbox's payload.
//!
//! ```text
//! parent (async, many threads) ──exec──▶ launcher ──clone3──▶ PID 1 ──fork+exec──▶ payload
//!   fd 0: Control / Report                  │ cgroups, maps, clock, kill, removal
//!   fd 1: Request / Event  ────────────────────────────────▶│ mounts, rights, processes, reaping
//! ```
//!
//! One static program from a sealed memory file, single-threaded, with no environment and no arguments: what to do comes
//! over the two sockets that are its descriptors 0 and 1. It decides nothing; the plan says each file, mount and limit.
#![expect(
    unsafe_code,
    reason = "this program is made of system calls that no safe wrapper without dependencies has"
)]

mod cgroup;
mod examine;
mod landlock;
mod launcher;
mod link;
mod mounts;
mod network;
mod pid1;
mod probe;
mod rights;
mod spawn;
mod sys;
mod terminal;
mod tree;

use std::process::ExitCode;

/// The exit codes are for people who read process accounts; the parent reads the reports.
fn main() -> ExitCode {
    // SAFETY: the parent's contract is that 0 and 1 are the two sockets, and nothing else here owns them.
    let (control, requests) = unsafe { (link::Link::from_raw(0), link::Link::from_raw(1)) };
    match launcher::run(control, requests) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
