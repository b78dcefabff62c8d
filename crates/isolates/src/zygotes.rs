//! Processes from zygotes: forked ahead of need, each in a memory group of its own.
//!
//! There is a pool for each size of memory, and a [keeper] task for each pool, which alone changes it:
//!
//! ```text
//!  take ──▶ standby ──▶ a process ─────────────────────────────▶ its invocation ─▶ dead, waited for ─▶ group back into the pool
//!              ▲
//!              │ Forked
//!  keeper ── Fork ──▶ current zygote ──── so many forks ───▶ retiring, until its last child is dead ──▶ ended
//!     └─────────────▶ next zygote, started when the current one is half used up, ready before it is
//! ```
//!
//! A zygote is retired because its children share the seed of V8's hashes (D8). One that dies takes its children along;
//! another is started, sooner or later, and what waits for a process waits no longer than a bound.

mod keeper;
mod standby;
mod zygote;

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bulkhead_model::plugin::MemoryClass;
use bulkhead_sandbox::{
    Refusal,
    memory::{MemoryGroups, PoolSize},
};
use bulkhead_zygote::{Isolate, TestHooks};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::process::{Census, NoProcess, Process, Processes};
use keeper::Keeper;
use standby::Standby;
pub use zygote::StartError;
use zygote::{Zygote, ZygoteId};

/// How long a process is waited for that stands not ready.
const TAKE_MAX: Duration = Duration::from_secs(10);

/// How zygotes are made and used.
#[derive(Debug, Clone)]
pub struct ZygoteSettings {
    /// `bulkhead-js`.
    pub program: PathBuf,
    pub isolate: Isolate,
    pub test_hooks: TestHooks,
    /// Processes that stand ready, of the normal size. Of the others one does, once one was asked for.
    pub standby: usize,
    /// Processes of one size at most.
    pub processes_max: usize,
    /// Forks of one zygote.
    pub retire_after: u32,
}

impl ZygoteSettings {
    /// The values of the documents, for this program.
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            isolate: Isolate::Ready,
            test_hooks: TestHooks::Absent,
            standby: 16,
            processes_max: 1_300,
            retire_after: 1_000,
        }
    }
}

/// Every pool of a service.
pub struct Zygotes {
    normal: Pool,
    media: Pool,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Pool {
    standby: Arc<Standby>,
}

#[derive(Debug, thiserror::Error)]
pub enum ZygotesError {
    /// A boundary could not be built.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Zygotes {
    /// Returns when the first zygote of the normal size stands ready.
    pub async fn start(settings: ZygoteSettings) -> Result<Self, ZygotesError> {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let groups = open_groups(MemoryClass::Normal, &settings, settings.standby)?;
        let first = Zygote::start(ZygoteId(0), &settings, MemoryClass::Normal, &tasks).await?;
        let media_groups = open_groups(MemoryClass::Media, &settings, 0)?;
        let keep = |memory, groups, first| {
            let standby = Arc::new(Standby::default());
            let target = match memory {
                MemoryClass::Normal => settings.standby,
                MemoryClass::Media => 1,
            };
            let keeper = Keeper::new(
                settings.clone(),
                memory,
                target,
                groups,
                Arc::clone(&standby),
                tasks.clone(),
            );
            tasks.spawn(keeper.run(first, stop.clone()));
            Pool { standby }
        };
        let normal = keep(MemoryClass::Normal, groups, Some(first));
        let media = keep(MemoryClass::Media, media_groups, None);
        Ok(Self {
            normal,
            media,
            stop,
            tasks,
        })
    }

    /// Ends every zygote and every process, and returns when nothing of them is left.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn pool(&self, memory: MemoryClass) -> &Pool {
        match memory {
            MemoryClass::Normal => &self.normal,
            MemoryClass::Media => &self.media,
        }
    }
}

impl Drop for Zygotes {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn open_groups(
    memory: MemoryClass,
    settings: &ZygoteSettings,
    ahead: usize,
) -> Result<MemoryGroups, Refusal> {
    MemoryGroups::open(PoolSize {
        limit_bytes: memory.group_bytes(),
        ahead,
        most: settings.processes_max,
    })
}

#[async_trait]
impl Processes for Zygotes {
    async fn take(&self, memory: MemoryClass) -> Result<Process, NoProcess> {
        self.pool(memory).standby.take(TAKE_MAX).await
    }

    fn census(&self) -> Census {
        let (normal, media) = (self.normal.standby.census(), self.media.standby.census());
        Census {
            standby: normal.standby + media.standby,
            zygotes: normal.zygotes + media.zygotes,
        }
    }
}
