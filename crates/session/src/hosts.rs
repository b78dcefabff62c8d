//! From what a session's file says of a host to the host itself, described and not yet used.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bulkhead_host::{
    Command, ContainerLimits, DockerHost, DuplexStream, Endpoint, Host, HostError, Layer, Listener,
    Listeners, LocalConfig, LocalHost, Mount, MountAccess, Network, NoNewPrivileges, Privileged,
    Process, Provider, Pull, SandboxHost, Seccomp, Security, SshHost, SystemPaths, WrapConfig,
    WrapNetwork, WrappedSandboxHost,
    supervisor::{Options, Supervisor},
};
use bulkhead_model::{
    SandboxId,
    session::{DockerConfig, Engine, HostPlug, SandboxConfig, SshConfig},
};
use bulkhead_sandbox::{Bind, EngineConfig, Plan, Workspace};

use crate::{
    agents::BULKHEAD_INSIDE,
    plug::PlugError,
    wire::{Machine, SessionDelivery},
};

/// A persistent host counts the session as lost after so long without a word (H14).
pub(crate) const LOST_AFTER_SECONDS: u16 = 16;

/// Where hosts are described: the runner's machine.
#[derive(Debug, Clone)]
pub struct Place {
    pub machine: Machine,
    /// What relative paths start from.
    pub base: PathBuf,
    /// What processes on the runner's machine find. Nothing else is inherited.
    pub local_env: BTreeMap<String, String>,
    /// What the `ssh` program finds besides: where its agent is.
    pub ssh_env: BTreeMap<String, String>,
    /// The program to offer in sandboxes as `bulkhead`.
    pub program: Option<PathBuf>,
}

impl Place {
    pub(crate) fn of(delivery: &SessionDelivery) -> Self {
        let order = &delivery.order;
        Self {
            machine: delivery.machine.clone(),
            base: order.base.clone(),
            local_env: order.local_env.clone(),
            ssh_env: order.ssh_env.clone(),
            program: delivery.program.clone(),
        }
    }
}

/// Describes hosts that nest, the first on the runner's machine. The last is the innermost; all have to be torn
/// down, it first. `id` makes their temporary directories their own.
pub fn chain(
    place: &Place,
    configs: &[HostPlug],
    id: &str,
) -> Result<Vec<Arc<dyn Host>>, PlugError> {
    let mut hosts: Vec<Arc<dyn Host>> = vec![Arc::new(local(place, &place.base))];
    let mut persistent = false;
    for config in configs {
        let Some(outer) = hosts.last().cloned() else {
            break;
        };
        let host: Arc<dyn Host> = match config {
            HostPlug::Local(config) => {
                let cwd = config.directory.as_deref().unwrap_or(".");
                Arc::new(local(place, &place.base.join(cwd)))
            }
            HostPlug::Sandbox(config) if is_local(&*outer) => {
                Arc::new(sandbox(place, Sandboxed(config), Box::new(drop)))
            }
            HostPlug::Sandbox(config) => wrapped(outer, Sandboxed(config))?,
            HostPlug::Docker(config) => {
                let lost = persistent.then_some(LOST_AFTER_SECONDS);
                Arc::new(docker(place, outer, config, lost))
            }
            HostPlug::Ssh(config) => {
                persistent |= config.persistent;
                ssh(place, outer, config, &make_short_directory(id)?)
            }
        };
        hosts.push(host);
    }
    Ok(hosts)
}

/// Removes what [`chain`] made for this id.
pub fn forget(id: &str) {
    drop(std::fs::remove_dir_all(short_directory(id)));
}

/// Whether processes of `host` are processes of the runner's machine, with nothing between.
pub(crate) fn is_local(host: &dyn Host) -> bool {
    let layers = host.isolation();
    !layers.is_empty() && layers.iter().all(|layer| layer.kind == "local")
}

/// Makes the session's short directory, or takes the one that it has already. What is not this user's own, or open to others, is
/// not taken: the directory's place is public.
pub(crate) fn make_short_directory(id: &str) -> Result<PathBuf, PlugError> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    let path = short_directory(id);
    let made = match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            std::fs::symlink_metadata(&path).and_then(|found| {
                let is_own = found.uid() == rustix::process::geteuid().as_raw();
                match found.is_dir() && is_own && found.mode() & 0o077 == 0 {
                    true => Ok(()),
                    false => Err(error),
                }
            })
        }
        other => other,
    };
    made.map_err(|error| PlugError::because(format!("making {}", path.display()), error))?;
    Ok(path)
}

/// Sockets have short paths only.
pub(crate) fn short_directory(id: &str) -> PathBuf {
    PathBuf::from(format!("/tmp/bulkhead-{id}"))
}

pub(crate) fn local(place: &Place, cwd: &Path) -> LocalHost {
    let home = place.local_env.get("HOME").map_or("/", String::as_str);
    let config = LocalConfig::new(home).cwd(cwd);
    let env = place.local_env.iter();
    LocalHost::new(env.fold(config, |config, (name, value)| config.env(name, value)))
}

/// A sandbox as the file says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sandboxed<'a>(pub(crate) &'a SandboxConfig);

/// The engine as this machine's operator configured it.
pub(crate) fn engine(machine: &Machine) -> EngineConfig {
    let mut config = EngineConfig::new(&machine.sandbox_dir);
    config.extra_ca_pem = machine.extra_ca_pem.clone().map(String::into_bytes);
    config
}

pub(crate) fn sandbox(place: &Place, config: Sandboxed<'_>, hand_over: Listeners) -> SandboxHost {
    let id = SandboxId::from_uuid(uuid::Uuid::now_v7());
    let mut plan = Plan::new(id, config.0.limits, Workspace::Image);
    plan.listeners = crate::plugs::door_listeners();
    plan.binds = config.0.read_only.iter().map(Bind::same_path).collect();
    if let Some(program) = &place.program {
        plan.binds.push(Bind::own_program(program, BULKHEAD_INSIDE));
    }
    SandboxHost::new(engine(&place.machine), plan, hand_over)
}

/// A sandbox on another machine has all of the network or none: what lets names through runs on the runner.
pub(crate) fn wrapped(
    outer: Arc<dyn Host>,
    config: Sandboxed<'_>,
) -> Result<Arc<dyn Host>, PlugError> {
    if !config.0.network.allow.is_empty() {
        return Err(PlugError::Refused(format!(
            "a sandbox on {} cannot keep a list of allowed hosts: leave `network` out there, and it reaches nothing",
            outer.describe()
        )));
    }
    let wrap = WrapConfig {
        readable: config.0.read_only.iter().map(PathBuf::from).collect(),
        network: WrapNetwork::None,
        lost_after_seconds: Some(LOST_AFTER_SECONDS),
        ..WrapConfig::default()
    };
    Ok(Arc::new(WrappedSandboxHost::new(outer, wrap)))
}

pub(crate) fn engine_socket(config: &DockerConfig) -> PathBuf {
    match (&config.socket, config.engine) {
        (Some(socket), _) => socket.into(),
        (None, Engine::Docker) => "/var/run/docker.sock".into(),
        (None, Engine::Podman) => "/run/podman/podman.sock".into(),
    }
}

pub(crate) fn docker(
    place: &Place,
    outer: Arc<dyn Host>,
    config: &DockerConfig,
    lost_after_seconds: Option<u16>,
) -> DockerHost {
    let mut described = bulkhead_host::DockerConfig::new(&config.image);
    described.socket = engine_socket(config);
    described.pull = Pull::IfMissing;
    described.mounts = config
        .mounts
        .iter()
        .map(|mount| mounted(place, &*outer, mount))
        .collect();
    described.env.clone_from(&config.env);
    described.user.clone_from(&config.user);
    described.workdir.clone_from(&config.workdir);
    described.limits = ContainerLimits {
        memory_bytes: config.limits.memory_bytes,
        cpu_millis: config.limits.cpu_milli,
        processes: config.limits.pids,
    };
    described.network = match config.network.as_deref() {
        None | Some("none") => Network::None,
        Some("bridge") => Network::Bridge,
        Some("host") => Network::Host,
        Some(name) => Network::Named(name.to_owned()),
    };
    described.runtime.clone_from(&config.runtime);
    if config.privileged {
        described.security.privileged = Privileged::Yes;
    }
    if config.sandbox_inside {
        described.security = Security {
            seccomp: Seccomp::Unconfined,
            system_paths: SystemPaths::Shown,
            no_new_privileges: NoNewPrivileges::Yes,
            drop_capabilities: vec!["ALL".to_owned()],
            ..described.security
        };
    }
    described.lost_after_seconds = lost_after_seconds;
    DockerHost::new(outer, described)
}

/// A name without a slash is a volume's; a relative path starts where the session's file is, on this machine.
fn mounted(place: &Place, outer: &dyn Host, mount: &bulkhead_model::session::Mount) -> Mount {
    let access = match mount.read_only {
        true => MountAccess::Read,
        false => MountAccess::Write,
    };
    let target = PathBuf::from(&mount.target);
    if !mount.source.contains('/') {
        return Mount::Volume {
            name: mount.source.clone(),
            target,
            access,
        };
    }
    let source = match is_local(outer) {
        true => place.base.join(&mount.source),
        false => PathBuf::from(&mount.source),
    };
    Mount::Bind {
        source,
        target,
        access,
    }
}

pub(crate) fn ssh(
    place: &Place,
    outer: Arc<dyn Host>,
    config: &SshConfig,
    run_dir: &Path,
) -> Arc<dyn Host> {
    let mut described = bulkhead_host::SshConfig::new(&config.host);
    if !is_local(&*outer) {
        described = described.through(outer);
    }
    described.run_dir = run_dir.to_owned();
    described.env.clone_from(&place.local_env);
    described.env.extend(place.ssh_env.clone());
    if let Some(file) = &config.config_file {
        described = described.config_file(place.base.join(file));
    }
    let host: Arc<dyn Host> = Arc::new(SshHost::new(described));
    if !config.persistent {
        return host;
    }
    let options = Options {
        patience: Duration::from_secs(u64::from(LOST_AFTER_SECONDS)),
        ..Options::default()
    };
    let supervisor = Supervisor::new(Arc::clone(&host), options);
    Arc::new(Persistent { host, supervisor })
}

/// A machine that outlives the session: what is started there has a supervisor (H14).
#[derive(Debug)]
struct Persistent {
    host: Arc<dyn Host>,
    supervisor: Supervisor,
}

#[async_trait]
impl Host for Persistent {
    fn describe(&self) -> String {
        self.host.describe()
    }

    fn is_connected(&self) -> bool {
        self.host.is_connected()
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        let (process, _) = self.supervisor.start(command).await?;
        Ok(process)
    }

    fn files(&self) -> Arc<dyn Provider> {
        self.host.files()
    }

    async fn connect(&self, to: Endpoint) -> Result<DuplexStream, HostError> {
        self.host.connect(to).await
    }

    async fn listen(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        self.host.listen(at).await
    }

    fn isolation(&self) -> Vec<Layer> {
        let mut layers = self.host.isolation();
        if let Some(layer) = layers.last_mut() {
            let words = match self.supervisor.level() {
                Some(level) => level.to_string(),
                None => "a supervisor on that machine ends the agent when the session is lost"
                    .to_owned(),
            };
            layer.supervision = Some(words);
        }
        layers
    }

    async fn teardown(&self) -> Result<(), HostError> {
        if !self.host.is_connected() {
            return Ok(());
        }
        let ended = self.supervisor.teardown().await;
        self.host.teardown().await?;
        ended
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::{forget, make_short_directory, short_directory};

    /// H13: a directory in a public place is taken only where it is this user's and closed to others.
    #[test]
    fn h13_a_directory_that_others_may_write_is_not_taken() {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let path = make_short_directory(&id).unwrap();
        assert_eq!(make_short_directory(&id).unwrap(), path);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_short_directory(&id).is_err());
        forget(&id);
        std::os::unix::fs::symlink("/tmp", short_directory(&id)).unwrap();
        assert!(make_short_directory(&id).is_err());
        std::fs::remove_file(short_directory(&id)).unwrap();
    }
}
