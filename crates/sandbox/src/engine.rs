//! The engine: what this machine can isolate, found out once, and the place where sandboxes are made.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bulkhead_init::wire::TreeIds;
use bulkhead_model::{ids::SandboxId, limits::Limits};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::{
    cgroup::{self, Layout, Owner},
    create,
    error::{CreateError, Refusal},
    layout::Shared,
    orphans,
    plan::{Plan, Workspace},
    pool::Images,
    process::ExitStatus,
    program::Program,
    sandbox::{Cause, Sandbox},
    seccomp,
    spec::ProcessSpec,
    store::{SYSTEMS, System},
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
    core: Arc<Core>,
}

/// What all sandboxes of an engine share. It lives as long as the last of them.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) program: Program,
    pub(crate) cgroups: Layout,
    pub(crate) system: System,
    pub(crate) filters: Vec<Vec<u8>>,
    pub(crate) images: Images,
    pub(crate) owner: Owner,
    pub(crate) is_root: bool,
    pub(crate) tasks: TaskTracker,
    systems: PathBuf,
    /// A trial sandbox has shown that every boundary can be built.
    is_proven: AtomicBool,
}

/// Below the run directory: the image templates.
const IMAGES: &str = "images";

impl Engine {
    /// Prepares what all sandboxes share; refuses where limits or files are not possible. What the kernel cannot do shows
    /// when the first sandbox is built, and then [`Self::create`] refuses it: there is no sandbox without every boundary.
    pub async fn open(config: EngineConfig) -> Result<Self, Refusal> {
        let work = tokio::task::spawn_blocking(|| Core::prepare(config));
        let core = work.await.unwrap_or_else(|error| Err(broken(&error)))?;
        core.images.fill();
        core.program.make_ready().await;
        Ok(Self {
            core: Arc::new(core),
        })
    }

    /// Finds out, by trying, whether this machine can build every boundary: it builds a sandbox, runs a program in it, and
    /// ends it. For those who want to know before there is anything to do; [`Self::open`] is as safe.
    pub async fn probe(config: EngineConfig) -> Result<Self, Refusal> {
        let engine = Self::open(config).await?;
        engine.try_one().await?;
        Ok(engine)
    }

    /// Builds a sandbox. When it returns, every wall stands and nothing of the caller's runs inside yet.
    pub async fn create(&self, plan: Plan) -> Result<Sandbox, CreateError> {
        match create::create(&self.core, plan).await {
            // Whether that was this plan or the machine, the plainest of all plans tells.
            Err(CreateError::Step { id, step, source })
                if !self.core.is_proven.load(Ordering::Relaxed) =>
            {
                self.try_one().await?;
                Err(CreateError::Step { id, step, source })
            }
            other => other,
        }
    }

    /// Ends and removes what sandboxes of dead owners left: processes, cgroups, directories. Leaves alone what a living
    /// owner holds, of this process or another.
    pub async fn reap_orphans(&self) -> Vec<Orphan> {
        let core = Arc::clone(&self.core);
        let work = tokio::task::spawn_blocking(move || {
            orphans::reap(&core.cgroups, &core.systems, core.owner)
        });
        work.await.unwrap_or_default()
    }

    /// How limits are set here, in words.
    pub fn describe(&self) -> String {
        let user = if self.core.is_root {
            "as root"
        } else {
            "not as root: one user id inside, disks in memory"
        };
        format!("{}, {user}", self.core.cgroups.describe())
    }

    /// A sandbox in earnest, with a program in it: what cannot be built is found before it is needed.
    async fn try_one(&self) -> Result<(), Refusal> {
        let limits = Limits {
            memory_bytes: 64 << 20,
            pids: 16,
            disk_bytes: 1 << 20,
            ..Limits::default()
        };
        let plan = Plan::new(
            SandboxId::from_uuid(Uuid::now_v7()),
            limits,
            Workspace::Tmpfs,
        );
        let sandbox = create::create(&self.core, plan).await.map_err(refuse)?;
        let failed = |seen: String| Refusal {
            boundary: "sandbox".to_owned(),
            seen,
            remedy: "run `bulkhead doctor` and see which boundary fails".to_owned(),
        };
        let spec = ProcessSpec::new(["/bin/true"]).cwd("/");
        let status = match sandbox.spawn(spec).await {
            Ok(process) => process.wait().await,
            Err(error) => {
                sandbox.end(Cause::Cancelled).await;
                return Err(failed(with_sources(&error)));
            }
        };
        let outcome = sandbox.end(Cause::Finished(status)).await;
        if status == ExitStatus::Code(0) {
            self.core.is_proven.store(true, Ordering::Relaxed);
            return Ok(());
        }
        Err(failed(format!(
            "a trial program in a trial sandbox {}",
            outcome.reason
        )))
    }
}

impl Core {
    fn prepare(config: EngineConfig) -> Result<Self, Refusal> {
        let EngineConfig {
            run_dir,
            extra_ca_pem,
            image_pool,
        } = config;
        let prepared = |what: &str, remedy: &str| {
            let (boundary, remedy) = (what.to_owned(), remedy.to_owned());
            move |error: io::Error| Refusal {
                boundary,
                seen: with_sources(&error),
                remedy,
            }
        };
        let is_root = rustix::process::geteuid().is_root();
        let cgroups = find_cgroups(is_root)?;
        cgroups.prepare()?;
        let owner = Owner::this().ok_or_else(|| Refusal {
            boundary: "process table".to_owned(),
            seen: "/proc does not show this process".to_owned(),
            remedy: "mount /proc".to_owned(),
        })?;
        let dir_remedy =
            "give Bulkhead a directory that it can write, on a file system that is not full";
        let (systems, image_dir) = (run_dir.join(SYSTEMS), run_dir.join(IMAGES));
        [&run_dir, &image_dir]
            .into_iter()
            .try_for_each(|dir| create::private_dir(dir))
            .map_err(prepared("run directory", dir_remedy))?;
        let system = System::open(&systems, owner, extra_ca_pem.as_deref())
            .map_err(prepared("read-only system", dir_remedy))?;
        let tasks = TaskTracker::new();
        Ok(Self {
            program: Program::load().map_err(prepared(
                "launcher",
                "allow memory files (memfd_create) to be executed",
            ))?,
            cgroups,
            system,
            filters: seccomp::programs(),
            images: Images::new(image_dir, image_pool, tasks.clone()),
            owner,
            is_root,
            tasks,
            systems,
            is_proven: AtomicBool::new(false),
        })
    }

    /// A host directory as a workspace: its owner's files are the agent's.
    pub(crate) fn shared(&self, path: &Path) -> io::Result<Shared> {
        let path = fs::canonicalize(path)?;
        let found = fs::metadata(&path)?;
        if !found.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let text = path.to_str().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let ids = if self.is_root {
            TreeIds::Owner {
                uid: found.uid(),
                gid: found.gid(),
            }
        } else {
            TreeIds::AsIs {}
        };
        Ok(Shared { path: text, ids })
    }
}

pub(crate) fn find_cgroups(is_root: bool) -> Result<Layout, Refusal> {
    let unreadable = |file: &str, error: io::Error| Refusal {
        boundary: "limits".to_owned(),
        seen: format!("reading {file}: {error}"),
        remedy: "mount /proc".to_owned(),
    };
    let mounts = "/proc/self/mountinfo";
    let mounts = fs::read_to_string(mounts).map_err(|error| unreadable(mounts, error))?;
    let own = "/proc/self/cgroup";
    let own = if is_root {
        None
    } else {
        Some(fs::read_to_string(own).map_err(|error| unreadable(own, error))?)
    };
    Layout::choose(&cgroup::mounted(&mounts, own.as_deref()))
}

fn broken(error: &dyn std::error::Error) -> Refusal {
    Refusal {
        boundary: "sandbox".to_owned(),
        seen: with_sources(error),
        remedy: "this is a defect of Bulkhead: please report it".to_owned(),
    }
}

/// Any failure to build the trial sandbox is a refusal.
pub(crate) fn refuse(error: CreateError) -> Refusal {
    match error {
        CreateError::Refused(refusal) => refusal,
        error => Refusal {
            boundary: "sandbox".to_owned(),
            seen: with_sources(&error),
            remedy: "run `bulkhead doctor` and see which boundary fails".to_owned(),
        },
    }
}

/// An error and what is behind it, in one line.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
