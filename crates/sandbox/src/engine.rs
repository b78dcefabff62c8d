//! The engine: what this machine can isolate, found out once, and the place where sandboxes are made.

use std::path::PathBuf;

use bulkhead_model::ids::SandboxId;

use crate::{
    error::{CreateError, Refusal},
    plan::Plan,
    sandbox::Sandbox,
};

/// What an engine is made with.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// A directory of the engine's own; made (0700) where it is missing. Holds prepared files, never a sandbox's data
    /// under a name. Several processes may share it.
    pub run_dir: PathBuf,
    /// The operator's certificate authority (PEM), trusted inside in addition to the system's.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// Workspace images to keep ready, so that creating a sandbox does not pay for making one.
    pub image_pool: ImagePool,
}

impl EngineConfig {
    pub fn new(run_dir: impl Into<PathBuf>) -> Self {
        Self {
            run_dir: run_dir.into(),
            extra_ca_pem: None,
            image_pool: ImagePool::default(),
        }
    }
}

/// How many images are kept ready, and of which size. The default keeps none: it is for commands that run once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImagePool {
    pub count: usize,
    pub size_bytes: u64,
}

/// What a dead owner left behind, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// None where the name did not hold one.
    pub id: Option<SandboxId>,
    /// What was found, in words: "cgroup /bulkhead/… with 3 processes".
    pub found: String,
    /// What was done, or why nothing could be done.
    pub done: Result<String, String>,
}

/// A machine that can build every boundary. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    _config: std::sync::Arc<EngineConfig>,
}

impl Engine {
    /// Finds out, by trying, whether this machine can build every boundary. There is no engine without all of them.
    pub async fn probe(config: EngineConfig) -> Result<Self, Refusal> {
        drop(config);
        Err(Refusal {
            boundary: "sandbox".to_owned(),
            seen: "this build has no engine yet".to_owned(),
            remedy: "use a later build".to_owned(),
        })
    }

    /// Builds a sandbox. When it returns, every wall stands and nothing of the caller's runs inside yet.
    pub async fn create(&self, plan: Plan) -> Result<Sandbox, CreateError> {
        drop(plan);
        Err(CreateError::Plan("this build has no engine yet".to_owned()))
    }

    /// Ends and removes what sandboxes of dead owners left: processes, cgroups, directories. Leaves alone what a living
    /// owner holds, of this process or another.
    pub async fn reap_orphans(&self) -> Vec<Orphan> {
        Vec::new()
    }
}
