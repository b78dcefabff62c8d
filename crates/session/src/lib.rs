//! The session: one process in which one phase is carried out.
//!
//! An executor starts the process, hands it a socket and sends one [`wire::Delivery`]. The session then
//! builds its plugs in order, so that inside one sandbox the workspace is cloned, the agent works, and the
//! result is committed and pushed; it sends what happens as [`wire::FromSession`] messages and ends with a
//! [`wire::Report`]. Plug code runs in this process and nowhere else (H5): a plug that hangs or kills its
//! process ends this session only.
//!
//! Nothing secret is ever in the process's arguments or environment; everything arrives over the socket.

mod agent;
pub mod agents;
mod directory;
pub mod hosts;
mod launch;
mod outbox;
mod phase;
pub mod plug;
mod plugs;
pub mod protocol;
mod results;
pub mod scripted;
mod session;
pub mod summary;
mod undo;
pub mod wire;
mod words;
mod worker;

pub use directory::{Record, Sessions, State};
pub use launch::{Launch, SessionProcess, last_words};
pub use undo::{Undone, undo};
pub use worker::{SessionError, run_worker};

/// The search path inside: the operator's toolchains first, so that theirs win over the system's.
fn inside_path(toolchains: &[String]) -> String {
    let mut dirs = vec![];
    for toolchain in toolchains {
        for below in ["/bin", "/node_modules/.bin", ""] {
            dirs.push(format!("{toolchain}{below}"));
        }
    }
    dirs.push(bulkhead_sandbox::DEFAULT_PATH.to_owned());
    dirs.join(":")
}
