//! The seam between the control plane and whatever performs phases.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use async_trait::async_trait;
use bulkhead_model::{Fence, PhaseName, PhaseOrder, RunId};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::{PhaseReport, PhaseSecrets, PhaseSink};

/// Performs phases, several at once, each in a session process and a sandbox of its own.
#[async_trait]
pub trait Executor: Send + Sync + 'static {
    /// Waits for a free place. Phases queue here, before they hold a lease, so that a lease is never
    /// renewed for work that has not begun.
    async fn reserve(&self) -> Place;

    /// Begins the phase and returns at once; its end comes through [`Running::ended`].
    async fn start(
        &self,
        place: Place,
        order: PhaseOrder,
        secrets: PhaseSecrets,
        sink: Arc<dyn PhaseSink>,
    ) -> Result<Running, StartError>;

    /// Ends whatever an earlier life of this executor left behind and `alive` does not name: session
    /// processes, sandboxes, control groups, directories. Safe to repeat (cases 6 and 25).
    async fn sweep(&self, alive: &[PhaseKey]) -> Vec<Orphan>;

    /// What this executor's machine can isolate, and the remedy for what it cannot, for people.
    async fn isolation(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Ends every phase and waits until nothing of them is left.
    async fn shutdown(&self);
}

/// One attempt at one phase, under one fence.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhaseKey {
    pub run: RunId,
    pub phase: PhaseName,
    pub attempt: u32,
    pub fence: Fence,
}

impl PhaseKey {
    pub fn of(order: &PhaseOrder) -> Self {
        Self {
            run: order.run,
            phase: order.phase.clone(),
            attempt: order.attempt,
            fence: order.fence,
        }
    }
}

impl fmt::Display for PhaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}#{} (fence {})",
            self.run, self.phase, self.attempt, self.fence
        )
    }
}

/// A free place at an executor; dropping it frees the place again.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "held, never read")] Option<OwnedSemaphorePermit>);

impl Place {
    pub const fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Some(permit))
    }

    /// A place at an executor that has no bound of its own, for tests.
    pub const fn unbounded() -> Self {
        Self(None)
    }
}

/// Why a phase is to end before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// A person cancelled it, or paused or stopped the run.
    Cancelled,
    /// The control plane is going away; what was not pushed is dispatched again.
    ShuttingDown,
    /// The lease belongs to somebody else by now: nothing that this phase says counts any more (D2).
    LeaseLost,
}

/// A phase that is being performed.
pub struct Running {
    pub key: PhaseKey,
    stop: watch::Sender<Option<StopReason>>,
    ended: Pin<Box<dyn Future<Output = PhaseReport> + Send>>,
}

impl Running {
    /// `stop` is the executor's own receiver's other end; `ended` must resolve once nothing of the phase
    /// is left, however it ended.
    pub fn new(
        key: PhaseKey,
        stop: watch::Sender<Option<StopReason>>,
        ended: impl Future<Output = PhaseReport> + Send + 'static,
    ) -> Self {
        Self {
            key,
            stop,
            ended: Box::pin(ended),
        }
    }

    /// Asks the phase to end; the first reason stays.
    pub fn stop(&self, why: StopReason) {
        self.stop.send_if_modified(|now| match now {
            Some(_) => false,
            None => {
                *now = Some(why);
                true
            }
        });
    }

    /// Resolves when nothing of the phase is left. Cancel-safe.
    pub async fn ended(&mut self) -> PhaseReport {
        (&mut self.ended).await
    }
}

/// A phase could not even be begun.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the executor is shutting down")]
    ShuttingDown,
    #[error("cannot start the session process {program}")]
    Spawn {
        program: String,
        #[source]
        source: std::io::Error,
    },
}

/// Something that an earlier life left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub kind: OrphanKind,
    /// Its process id, path or name.
    pub what: String,
    /// None where it was ended or removed; else why it still is there.
    pub left: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanKind {
    SessionProcess,
    Sandbox,
    ControlGroup,
    Directory,
}

impl fmt::Display for OrphanKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionProcess => "session process",
            Self::Sandbox => "sandbox",
            Self::ControlGroup => "control group",
            Self::Directory => "directory",
        })
    }
}
