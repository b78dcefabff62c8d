//! Containers, and sandboxes on other hosts, for the suite: on engines and a server of the suite's own.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::PathBuf,
    sync::Arc,
};

use bulkhead_host::{
    DockerConfig, DockerHost, Host, LocalConfig, LocalHost, Mount, MountAccess, SshHost,
    WrapConfig, WrappedSandboxHost,
};
use bulkhead_test_hosts::{Account, ContainerEngine, Sshd, SshdOptions};

use super::{Maker, nested::Nested};
use crate::{docker, wrapped};

/// The user of every container here.
const USER: u32 = 1000;
/// The user's own directory, with mounts in it, as where Node was recorded.
const OWN: &str = "/own";
const READ_ONLY: &str = "/own/ro";
const OTHER: &str = "/own/closed/other";

/// Containers of an engine on this machine.
pub(crate) struct Containers {
    engine: ContainerEngine,
    read_only: tempfile::TempDir,
    own: tempfile::TempDir,
}

impl Containers {
    pub(crate) fn of(engine: ContainerEngine) -> Self {
        let read_only = tempfile::tempdir().unwrap();
        let dir = read_only.path();
        fs::create_dir(dir.join("dir")).unwrap();
        fs::create_dir(dir.join("empty")).unwrap();
        fs::write(dir.join("file"), "read\n").unwrap();
        fs::write(dir.join("dir/one"), "one\n").unwrap();
        symlink("file", dir.join("link")).unwrap();
        for name in ["", "dir", "empty", "file", "dir/one"] {
            chown(dir.join(name), Some(USER), Some(USER)).unwrap();
        }
        let own = tempfile::tempdir().unwrap();
        fs::create_dir(own.path().join("ro")).unwrap();
        fs::create_dir_all(own.path().join("closed/other")).unwrap();
        // What is mounted there has the permissions of what is below it.
        let everybody = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(own.path().join("closed/other"), everybody).unwrap();
        for name in ["", "ro"] {
            chown(own.path().join(name), Some(USER), Some(USER)).unwrap();
        }
        Self {
            engine,
            read_only,
            own,
        }
    }

    fn config(&self) -> DockerConfig {
        let mut config = docker::config(&self.engine);
        config.mounts.push(Mount::Bind {
            source: self.own.path().to_owned(),
            target: OWN.into(),
            access: MountAccess::Write,
        });
        config.mounts.push(Mount::Bind {
            source: self.read_only.path().to_owned(),
            target: READ_ONLY.into(),
            access: MountAccess::Read,
        });
        config.mounts.push(Mount::Tmpfs {
            target: OTHER.into(),
            size_bytes: 64 << 20,
        });
        config
    }
}

impl Maker for Containers {
    fn describe(&self) -> Box<dyn Fn() -> Arc<dyn Host> + Send + Sync> {
        let config = self.config();
        Box::new(move || Arc::new(DockerHost::new(local(), config.clone())))
    }

    fn scratch(&self) -> PathBuf {
        OWN.into()
    }

    fn read_only(&self) -> Option<PathBuf> {
        Some(READ_ONLY.into())
    }

    fn other_file_system(&self) -> Option<PathBuf> {
        Some(OTHER.into())
    }
}

/// Containers of an engine that is reached over ssh.
pub(crate) struct ContainersOverSsh {
    engine: ContainerEngine,
    sshd: Sshd,
}

impl ContainersOverSsh {
    pub(crate) fn new() -> Self {
        let options = SshdOptions {
            account: Account::Root,
            ..SshdOptions::default()
        };
        Self {
            engine: ContainerEngine::docker(),
            sshd: Sshd::start_with(options),
        }
    }
}

impl Maker for ContainersOverSsh {
    fn describe(&self) -> Box<dyn Fn() -> Arc<dyn Host> + Send + Sync> {
        let (ssh, config) = (crate::ssh::config(&self.sshd), docker::config(&self.engine));
        Box::new(move || {
            let outer: Arc<dyn Host> = Arc::new(SshHost::new(ssh.clone()));
            let inner = DockerHost::new(Arc::clone(&outer), config.clone());
            Arc::new(Nested::new(outer, inner))
        })
    }

    fn scratch(&self) -> PathBuf {
        "/work".into()
    }

    fn connections(&self) -> Option<u64> {
        u64::try_from(self.sshd.accepted()).ok()
    }
}

/// Sandboxes in containers.
pub(crate) struct SandboxInContainer(ContainerEngine);

impl SandboxInContainer {
    pub(crate) fn new() -> Self {
        Self(ContainerEngine::docker())
    }
}

impl Maker for SandboxInContainer {
    fn describe(&self) -> Box<dyn Fn() -> Arc<dyn Host> + Send + Sync> {
        let config = wrapped::open_container(&self.0);
        Box::new(move || {
            let outer: Arc<dyn Host> = Arc::new(DockerHost::new(local(), config.clone()));
            let inner = WrappedSandboxHost::new(Arc::clone(&outer), WrapConfig::default());
            Arc::new(Nested::new(outer, inner))
        })
    }

    fn scratch(&self) -> PathBuf {
        "/home/agent".into()
    }
}

/// Sandboxes on a machine that is reached over ssh.
pub(crate) struct SandboxOverSsh(Sshd);

impl SandboxOverSsh {
    pub(crate) fn new() -> Self {
        Self(Sshd::start())
    }
}

impl Maker for SandboxOverSsh {
    fn describe(&self) -> Box<dyn Fn() -> Arc<dyn Host> + Send + Sync> {
        let ssh = crate::ssh::config(&self.0);
        Box::new(move || {
            let outer: Arc<dyn Host> = Arc::new(SshHost::new(ssh.clone()));
            let inner = WrappedSandboxHost::new(Arc::clone(&outer), WrapConfig::default());
            Arc::new(Nested::new(outer, inner))
        })
    }

    fn scratch(&self) -> PathBuf {
        "/home/agent".into()
    }

    fn connections(&self) -> Option<u64> {
        u64::try_from(self.0.accepted()).ok()
    }
}

fn local() -> Arc<dyn Host> {
    Arc::new(LocalHost::new(LocalConfig::new("/tmp")))
}
