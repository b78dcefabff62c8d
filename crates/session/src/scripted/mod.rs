//! The scripted agent: `bulkhead agent scripted FILE`, an agent that performs written steps.
//!
//! It speaks the Agent Client Protocol on its standard streams like any other agent, so the demo and the tests
//! go the same way as real work, with no model behind. The file is YAML (or JSON):
//!
//! ```yaml
//! steps:
//!   - think: The greeting is missing.
//!   - plan: [Write the greeting, Test it]
//!   - write: {path: greeting.txt, text: "Hello\n"}
//!   - run: test -s greeting.txt
//!   - say: Done.
//! ```
//!
//! With `remember: FILE` beside the steps, the agent keeps its conversation in that file and can load it again; the
//! step `mode` changes the conversation's mode, and `{prompts}` in a text stands for all prompts so far.
//!
//! Each prompt performs all steps, in the session's working directory. `{prompt}` in a text stands for the
//! prompt. A step that fails fails the turn, with an error that names the step and its line.

mod file;
mod memory;
mod perform;
mod rpc;

use std::path::Path;

use tokio::io::{AsyncRead, AsyncWrite};

pub use file::{Script, ScriptError, Step};

/// Why the scripted agent stopped before its client was done.
#[derive(Debug, thiserror::Error)]
pub enum ScriptedError {
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error("reading the client's messages")]
    Read(#[from] crate::protocol::LineError),
    #[error("writing to the client")]
    Write(#[source] std::io::Error),
}

/// Serves one client on `stdin` and `stdout` until it closes its side or a step exits. Returns the exit code.
pub async fn run<R, W>(file: &Path, stdin: R, stdout: W) -> Result<u8, ScriptedError>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let script = Script::read(file).await?;
    rpc::serve(&script, stdin, stdout).await
}
