//! One living sandbox.

use bulkhead_model::{
    ids::SandboxId,
    outcome::{EndReason, Outcome, ResourceUse},
};

use crate::{
    error::SpawnError,
    plan::BoundSocket,
    process::{ExitStatus, Process},
    spec::ProcessSpec,
};

/// Why the owner ends a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The work is over: the process that counts ended so. The outcome's reason is its status, or the limit that the
    /// kernel's counters show to be behind its failure.
    Finished(ExitStatus),
    /// The owner's own clock ran out. (`limits.time_ms` is watched by the sandbox itself.)
    Timeout,
    /// The owner heard nothing for `limits.idle_ms`.
    Idle,
    Cancelled,
}

/// A sandbox. Dropping it ends it in the background, as the parent's death does.
#[derive(Debug)]
pub struct Sandbox {
    id: SandboxId,
}

impl Sandbox {
    pub const fn id(&self) -> SandboxId {
        self.id
    }

    /// The plan's listeners, in the plan's order, once; empty after that.
    pub fn take_listeners(&self) -> Vec<BoundSocket> {
        Vec::new()
    }

    /// Starts a process. The sandbox's time limit counts from the first one.
    pub async fn spawn(&self, spec: ProcessSpec) -> Result<Process, SpawnError> {
        drop(spec);
        Err(SpawnError::SandboxEnded)
    }

    /// Waits until the sandbox has ended by itself (its time limit, its launcher's death) or by [`Sandbox::end`] elsewhere.
    pub async fn ended(&self) -> Outcome {
        self.end(Cause::Cancelled).await
    }

    /// Kills everything inside, waits until nothing is left of the sandbox, and says how it ended. Where it had already
    /// ended, or is ended twice, the first cause counts and every caller gets the same outcome. Legal in every state.
    pub async fn end(&self, cause: Cause) -> Outcome {
        let _ = cause;
        Outcome {
            reason: EndReason::Lost,
            evidence: Vec::new(),
            used: ResourceUse::default(),
        }
    }
}
