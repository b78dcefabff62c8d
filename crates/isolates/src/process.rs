//! One invocation's process, as the broker has it: a pipe, a way to end it, and news of its death.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bulkhead_model::plugin::MemoryClass;
pub use bulkhead_zygote::control::Ending;
use tokio::{net::UnixStream, sync::oneshot};

/// Where processes come from: zygotes, or threads in tests.
#[async_trait]
pub trait Processes: Send + Sync + 'static {
    /// A process that no plugin was in, and that says `Ready` on its pipe, or did.
    async fn take(&self, memory: MemoryClass) -> Result<Process, NoProcess>;

    fn census(&self) -> Census;
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    pub standby: u32,
    pub zygotes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoProcess {
    #[error("as many plugins' processes live as may")]
    Full,
    #[error("no process for a plugin could be made in time")]
    TooSlow,
    #[error("the service ends")]
    Ending,
}

/// Owned by the one invocation that it serves. It is killed when it is dropped, whatever it was doing.
pub struct Process {
    pub(crate) pipe: UnixStream,
    /// What became of it, once it is dead and waited for.
    pub(crate) death: oneshot::Receiver<Death>,
    grip: Arc<dyn Grip>,
}

/// A hold on a process that outlives it safely.
pub trait Grip: Send + Sync + 'static {
    /// Ends it at once, however it is. Again does no harm.
    fn kill(&self);

    /// The most memory that it held so far; none where the kernel does not say.
    fn memory_peak_bytes(&self) -> Option<u64>;
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// None where nobody is left who could know.
    pub ending: Option<Ending>,
    /// The kernel ended it for its memory.
    pub oom_killed: bool,
    pub memory_peak_bytes: Option<u64>,
}

impl Process {
    pub fn new(pipe: UnixStream, death: oneshot::Receiver<Death>, grip: Arc<dyn Grip>) -> Self {
        Self { pipe, death, grip }
    }

    pub fn kill(&self) {
        self.grip.kill();
    }

    pub fn memory_peak_bytes(&self) -> Option<u64> {
        self.grip.memory_peak_bytes()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.grip.kill();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("pipe", &self.pipe)
            .finish_non_exhaustive()
    }
}
