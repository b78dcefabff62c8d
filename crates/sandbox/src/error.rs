//! What can go wrong, in words that name the step and, where the person can act, the remedy.

use std::{ffi::OsString, fmt, io};

use bulkhead_model::ids::SandboxId;

/// A boundary that this machine cannot build. There is no sandbox without it, so callers exit with 3 (R3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which boundary: "user namespace", "memory limit", "Landlock" …
    pub boundary: String,
    /// What was tried and what the kernel said.
    pub seen: String,
    /// What the machine's owner can do about it.
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "refused: the boundary “{}” cannot be built: {}. What to do: {}",
            self.boundary, self.seen, self.remedy
        )
    }
}

impl std::error::Error for Refusal {}

/// Why there is no sandbox. Whatever had been made before the failure is gone again.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The plan asks for something that no sandbox can be.
    #[error("the sandbox's plan is not possible: {0}")]
    Plan(String),
    #[error("creating sandbox {id}: {step}")]
    Step {
        id: SandboxId,
        /// What was being done, with the path or name it was done to.
        step: String,
        #[source]
        source: io::Error,
    },
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No such program (a shell's exit code 127).
    #[error("no program {0:?} in the sandbox")]
    NotFound(OsString),
    /// There, but it cannot be executed (a shell's exit code 126).
    #[error("executing {program:?} in the sandbox")]
    NotExecutable {
        program: OsString,
        #[source]
        source: io::Error,
    },
    /// The working directory is not there or not accessible.
    #[error("entering the working directory {dir:?} in the sandbox")]
    WorkingDirectory {
        dir: OsString,
        #[source]
        source: io::Error,
    },
    /// The limit of processes, or of memory, left no room for another one.
    #[error("making a process in the sandbox")]
    NoRoom(#[source] io::Error),
    #[error("the process's description is not possible: {0}")]
    Spec(String),
    #[error("the sandbox has ended")]
    SandboxEnded,
    #[error("asking the sandbox for a process")]
    Io(#[source] io::Error),
}

/// Why a signal or a new terminal size did not reach a process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("the process has no terminal")]
    NoTerminal,
    #[error("the sandbox has ended")]
    SandboxEnded,
    #[error("speaking with the sandbox")]
    Io(#[source] io::Error),
}
