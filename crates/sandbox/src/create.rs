//! Building one sandbox: from a plan to PID 1's word that every wall stands.

use std::{
    fs, io,
    net::{TcpListener, UdpSocket},
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use bulkhead_init::wire::{self, Control, Event, Failure, Report};
use bulkhead_model::ids::SandboxId;
use tokio::time::timeout;

use crate::{
    access,
    cgroup::Name,
    driver::{Driver, Links},
    engine::Core,
    error::{CreateError, Refusal},
    image::Image,
    layout::{self, Disk, Mounts, Shared},
    link::Link,
    plan::{BoundSocket, Plan, Transport, Workspace},
    sandbox::Sandbox,
    shared::Watch,
    system::HOSTNAME,
};

/// Creation takes milliseconds; a machine that needs longer than this has stopped working.
const CREATION_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn create(core: &Arc<Core>, plan: Plan) -> Result<Sandbox, CreateError> {
    layout::check(&plan).map_err(CreateError::Plan)?;
    let id = plan.id;
    let at = |step: &str| {
        let step = step.to_owned();
        move |source| CreateError::Step { id, step, source }
    };
    let name = Name {
        id,
        owner: core.owner,
    };
    let materials = prepare(core, &plan).await?;
    let built = materials.wire_plan(core, &plan, &name)?;
    let passed: Vec<_> = materials
        .image
        .iter()
        .map(|image| image.mount.as_fd())
        .collect();
    let build = Control::Build { plan: built };
    let launched = core.program.launch(&build, &passed).await;
    let mut links = launched.map_err(at("starting the launcher"))?;
    let files = match timeout(CREATION_LIMIT, ready(&mut links)).await {
        Ok(Ok(files)) => files,
        Ok(Err(failed)) => {
            let error = failed.into_error(id);
            abandon(links).await;
            return Err(error);
        }
        Err(_) => {
            abandon(links).await;
            return Err(at("waiting for the sandbox's first process")(
                io::ErrorKind::TimedOut.into(),
            ));
        }
    };
    core.program.make_ready().await;
    let shared = materials
        .watch(&plan)
        .map_err(at("looking at the workspace's file system"))?;
    let (listeners, watched) =
        sort_files(&plan, files).map_err(at("taking the sandbox's listeners"))?;
    Ok(Driver::start(
        Arc::clone(core),
        name,
        plan,
        links,
        listeners,
        watched,
        shared,
    ))
}

/// What has to be there before the launcher can begin.
struct Materials {
    root: std::path::PathBuf,
    image: Option<Image>,
    disk: Disk,
    shared: Option<Shared>,
}

async fn prepare(core: &Arc<Core>, plan: &Plan) -> Result<Materials, CreateError> {
    let id = plan.id;
    let step = |step: String| move |source| CreateError::Step { id, step, source };
    let points =
        layout::mount_points(plan).map_err(step("looking at what is to be bound".to_owned()))?;
    let root = core
        .system
        .root(&points)
        .map_err(step("preparing the root directory".to_owned()))?;
    let shared = match &plan.workspace {
        Workspace::Directory(path) => Some(
            core.shared(path)
                .map_err(step(format!("looking at {}", path.display())))?,
        ),
        Workspace::Image | Workspace::Tmpfs => None,
    };
    let size_bytes = plan.limits.disk_bytes;
    if plan.workspace == Workspace::Tmpfs || !core.is_root {
        return Ok(Materials {
            root,
            image: None,
            disk: Disk::Memory { size_bytes },
            shared,
        });
    }
    let image = core
        .images
        .take(size_bytes)
        .await
        .map_err(step("making the workspace's disk image".to_owned()))?;
    Ok(Materials {
        root,
        image: Some(image),
        disk: Disk::Image,
        shared,
    })
}

impl Materials {
    fn watch(&self, plan: &Plan) -> io::Result<Option<Watch>> {
        let start =
            |shared: &Shared| Watch::start(shared.path.clone().into(), plan.limits.disk_bytes);
        self.shared.as_ref().map(start).transpose()
    }

    fn wire_plan(&self, core: &Core, plan: &Plan, name: &Name) -> Result<wire::Plan, CreateError> {
        let (groups, kill) = core.cgroups.groups(name, &plan.limits);
        let mounts = Mounts::new(
            &self.root,
            &core.system,
            plan,
            &self.disk,
            self.shared.as_ref(),
        );
        Ok(wire::Plan {
            groups,
            kill,
            ids: if core.is_root {
                layout::PRIVATE_IDS
            } else {
                wire::Ids::Own {}
            },
            trees: mounts.trees,
            steps: mounts.steps,
            hostname: HOSTNAME.to_owned(),
            listeners: layout::listeners(plan),
            access: access::rules(&core.system.real_dirs, &plan.binds),
            filters: core.filters.clone(),
            rlimits: layout::rlimits(self.shared.as_ref().map(|_| plan.limits.disk_bytes)),
            time_ms: plan.limits.time_ms,
            watched: layout::watched(),
        })
    }
}

/// Why nothing was built.
enum NotBuilt {
    /// The launcher or PID 1 says which step failed.
    Step(Failure),
    Link(io::Error),
    /// A process was gone without a word.
    Gone(&'static str),
}

/// Waits until PID 1 says that it is ready, and takes the files that come with that.
async fn ready(links: &mut Links) -> Result<Vec<OwnedFd>, NotBuilt> {
    loop {
        tokio::select! {
            // PID 1's own words come first: the launcher's report of its death says less.
            biased;
            event = links.requests.receive::<Event>() => match event.map_err(NotBuilt::Link)? {
                Some((Event::Ready {}, files)) => return Ok(files),
                Some((Event::Failed { failure }, _)) => return Err(NotBuilt::Step(failure)),
                Some(_) => {}
                None => return Err(launcher_s_word(&links.control).await),
            },
            report = links.control.receive::<Report>() => match report.map_err(NotBuilt::Link)? {
                Some((Report::Started { launcher }, _)) => links.launcher = Some(launcher),
                Some((Report::Probed { .. }, _)) => {}
                Some((Report::Failed { failure }, _)) => return Err(NotBuilt::Step(failure)),
                Some((Report::Ended { .. }, _)) | None => return Err(NotBuilt::Gone("the launcher")),
            },
        }
    }
}

/// PID 1's link is closed also when the launcher could not even make PID 1; then it says why.
async fn launcher_s_word(control: &Link) -> NotBuilt {
    loop {
        match control.receive::<Report>().await {
            Ok(Some((Report::Failed { failure }, _))) => return NotBuilt::Step(failure),
            Ok(Some((Report::Started { .. } | Report::Probed { .. }, _))) => {}
            Ok(Some((Report::Ended { .. }, _))) => {
                return NotBuilt::Gone("the sandbox's first process");
            }
            Ok(None) => return NotBuilt::Gone("the launcher"),
            Err(error) => return NotBuilt::Link(error),
        }
    }
}

impl NotBuilt {
    fn into_error(self, id: SandboxId) -> CreateError {
        let (step, source) = match self {
            Self::Step(failure) => (failure.step, io::Error::from_raw_os_error(failure.errno)),
            Self::Link(error) => ("speaking with the sandbox's processes".to_owned(), error),
            Self::Gone(who) => (
                format!("waiting for {who}, which ended without a word"),
                io::ErrorKind::BrokenPipe.into(),
            ),
        };
        match refusal(&step, &source) {
            Some(refusal) => CreateError::Refused(refusal),
            None => CreateError::Step { id, step, source },
        }
    }
}

/// Steps whose failure means that the machine cannot build a boundary, and what its owner can do.
fn refusal(step: &str, source: &io::Error) -> Option<Refusal> {
    let (boundary, remedy) = match step {
        "making the sandbox's namespaces" | "becoming root inside the sandbox" => {
            ("namespaces", NAMESPACES_REMEDY)
        }
        step if step.contains("_map") => ("user namespace", NAMESPACES_REMEDY),
        step if step.starts_with("separating") || step.contains("own /proc") => {
            ("mount namespace", MOUNTS_REMEDY)
        }
        step if step.contains("Landlock") => ("Landlock", LANDLOCK_REMEDY),
        step if step.contains("system-call filter") => (
            "system-call filter",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ),
        step if step.starts_with("mapping the owner") => ("workspace", OWNERS_REMEDY),
        step if step.contains("cgroup") => ("limits", LIMITS_REMEDY),
        step if step.starts_with("writing ") => (
            "limits",
            "this limit is not possible here; see `bulkhead doctor`",
        ),
        _ => return None,
    };
    Some(Refusal {
        boundary: boundary.to_owned(),
        seen: format!("{step}: {source}"),
        remedy: remedy.to_owned(),
    })
}

pub(crate) const LIMITS_REMEDY: &str = "give Bulkhead a cgroup hierarchy with the cpu, memory and pids controllers: run it as root, or \
    delegate a v2 subtree to its user (systemd: `systemd-run --user --scope -p Delegate=yes bulkhead …`)";
pub(crate) const NAMESPACES_REMEDY: &str = "allow user namespaces: `sysctl -w user.max_user_namespaces=15000`; on Ubuntu 23.10 and later also \
    `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor profile with `userns,` for the bulkhead binary; \
    on Debian before 11 `sysctl -w kernel.unprivileged_userns_clone=1`; inside Docker run the container with \
    `--security-opt seccomp=unconfined --security-opt apparmor=unconfined` and `--cap-add SYS_ADMIN`";
const MOUNTS_REMEDY: &str = "Bulkhead seems to run in a container whose /proc is covered in part, and the kernel lets nobody \
    mount a fresh one then: run it outside, or with `--security-opt systempaths=unconfined` (Docker), \
    `securityContext.procMount: Unmasked` (Kubernetes)";
const OWNERS_REMEDY: &str = "a shared directory must lie on a file system that can show its files under another owner (idmapped \
    mounts: ext4, xfs, btrfs, f2fs and others from Linux 5.12 to 5.15 on, tmpfs from 6.3 on; overlayfs, on which most containers have their \
    root, cannot): move it there, or mount a volume for it";
pub(crate) const LANDLOCK_REMEDY: &str = "use a kernel of 5.13 or later with Landlock on (CONFIG_SECURITY_LANDLOCK, and `landlock` in the `lsm=` list)";

/// Lets the launcher clean up what there is, and waits for it.
async fn abandon(links: Links) {
    let Links {
        control,
        requests,
        launcher,
    } = links;
    drop(requests);
    // Closing the link would say the same, but then nobody could see when the launcher is done.
    let _ = control.send(&Control::End {}, &[]).await;
    bury(&control, launcher).await;
}

/// Waits until a launcher that has nothing more to do is gone, which its end of the link shows; one that hangs is killed, and
/// its sandbox dies with it.
pub(crate) async fn bury(control: &Link, launcher: Option<u32>) {
    const PATIENCE: Duration = Duration::from_secs(30);
    let gone = async { while let Ok(Some(_)) = control.receive::<Report>().await {} };
    if timeout(PATIENCE, gone).await.is_err() {
        kill(launcher);
    }
}

/// Only while its link is open: then it lives, and its pid is nobody else's.
pub(crate) fn kill(launcher: Option<u32>) {
    let pid = launcher
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// PID 1 sends the listeners in the plan's order, then the watched directories.
fn sort_files(plan: &Plan, files: Vec<OwnedFd>) -> io::Result<(Vec<BoundSocket>, Vec<OwnedFd>)> {
    if files.len() != plan.listeners.len() + layout::watched().len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut files = files.into_iter();
    let sockets = plan
        .listeners
        .iter()
        .zip(files.by_ref())
        .map(|(listener, file)| match listener.transport {
            Transport::Tcp => BoundSocket::Tcp(TcpListener::from(file)),
            Transport::Udp => BoundSocket::Udp(UdpSocket::from(file)),
        });
    Ok((sockets.collect(), files.collect()))
}

/// Makes a directory that is the user's own and closed to everybody else, or closes one that is there. What others could
/// write is not trusted.
pub(crate) fn private_dir(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(path)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if is_own && found.mode() & 0o022 == 0 {
        return match found.mode() & 0o077 {
            0 => Ok(()),
            _ => fs::set_permissions(path, fs::Permissions::from_mode(0o700)),
        };
    }
    let words = format!(
        "{} must be a directory of this user's own that nobody else can write (mode 0700)",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
}
