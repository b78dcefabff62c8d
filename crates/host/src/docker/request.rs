//! The description in the engine's words.

use std::{collections::HashMap, path::Path, time::Duration};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount as EngineMount,
    MountTmpfsOptions, MountType, MountVolumeOptions,
};

use super::{
    archive::{DIR, HELPER},
    config::{
        DockerConfig, Mount, MountAccess, Namespace, NoNewPrivileges, Privileged, Root, Seccomp,
        SystemPaths,
    },
};
use crate::holder;

pub(super) fn lost_after(config: &DockerConfig) -> Option<Duration> {
    config
        .lost_after_seconds
        .map(|seconds| Duration::from_secs(seconds.into()))
}

/// Whose engine it is: they call a few things differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Docker,
    Podman,
}

pub(super) fn create_body(config: &DockerConfig, kind: Kind) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(config.image.clone()),
        entrypoint: Some(vec![HELPER.to_owned()]),
        cmd: Some(holder::arguments(lost_after(config))),
        user: config.user.clone(),
        working_dir: config.workdir.clone(),
        env: Some(lines(config)),
        labels: Some(config.labels.clone().into_iter().collect()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        open_stdin: Some(true),
        // Whoever attached is the only one: when their connection ends, so does the input, and with it the container.
        stdin_once: Some(true),
        // An image's own check would run beside the holder, for nobody.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        host_config: Some(host_config(config, kind)),
        ..ContainerCreateBody::default()
    }
}

fn lines(config: &DockerConfig) -> Vec<String> {
    let env = config.env.iter();
    env.map(|(name, value)| format!("{name}={value}")).collect()
}

fn host_config(config: &DockerConfig, kind: Kind) -> HostConfig {
    let security = &config.security;
    let shared = |namespace: Namespace| (namespace == Namespace::Host).then(|| "host".to_owned());
    let memory = config.limits.memory_bytes.map(whole);
    let shown = (security.system_paths == SystemPaths::Shown).then(Vec::new);
    HostConfig {
        mounts: Some(mounts(config)),
        memory,
        // The same figure with swap: none of it.
        memory_swap: memory,
        nano_cpus: config
            .limits
            .cpu_millis
            .map(|millis| i64::from(millis) * 1_000_000),
        pids_limit: config.limits.processes.map(i64::from),
        network_mode: Some(config.network.mode().to_owned()),
        runtime: config.runtime.clone(),
        auto_remove: Some(true),
        readonly_rootfs: Some(config.root == Root::ReadOnly),
        cap_add: list(&security.add_capabilities),
        cap_drop: list(&security.drop_capabilities),
        privileged: Some(security.privileged == Privileged::Yes),
        security_opt: list(&security_options(config, kind)),
        masked_paths: shown.clone(),
        readonly_paths: shown,
        pid_mode: shared(security.pid),
        ipc_mode: shared(security.ipc),
        userns_mode: shared(security.users),
        // The holder's output is its processes' streams: nothing for a log.
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        ..HostConfig::default()
    }
}

fn list(values: &[String]) -> Option<Vec<String>> {
    (!values.is_empty()).then(|| values.to_vec())
}

fn security_options(config: &DockerConfig, kind: Kind) -> Vec<String> {
    let mut options = Vec::new();
    if config.security.no_new_privileges == NoNewPrivileges::Yes {
        options.push("no-new-privileges".to_owned());
    }
    // For Docker it is an empty list of hidden paths, which Podman does not look at.
    if config.security.system_paths == SystemPaths::Shown && kind == Kind::Podman {
        options.push("unmask=ALL".to_owned());
    }
    match &config.security.seccomp {
        Seccomp::Default => {}
        Seccomp::Unconfined => options.push("seccomp=unconfined".to_owned()),
        Seccomp::Profile(text) => options.push(format!("seccomp={text}")),
    }
    options
}

fn mounts(config: &DockerConfig) -> Vec<EngineMount> {
    let own = config.mounts.iter().map(mount);
    // A root that nobody may write takes no archive either; a volume of the container's own does.
    let helper = (config.root == Root::ReadOnly).then(|| EngineMount {
        typ: Some(MountType::VOLUME),
        target: Some(DIR.to_owned()),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            labels: Some(config.labels.clone().into_iter().collect::<HashMap<_, _>>()),
            ..MountVolumeOptions::default()
        }),
        ..EngineMount::default()
    });
    own.chain(helper).collect()
}

fn mount(mount: &Mount) -> EngineMount {
    let base = |typ| EngineMount {
        typ: Some(typ),
        target: Some(text(mount.target())),
        ..EngineMount::default()
    };
    match mount {
        Mount::Bind { source, access, .. } => EngineMount {
            source: Some(text(source)),
            read_only: Some(*access == MountAccess::Read),
            ..base(MountType::BIND)
        },
        Mount::Volume { name, access, .. } => EngineMount {
            source: Some(name.clone()),
            read_only: Some(*access == MountAccess::Read),
            ..base(MountType::VOLUME)
        },
        Mount::Tmpfs { size_bytes, .. } => EngineMount {
            tmpfs_options: Some(MountTmpfsOptions {
                size_bytes: Some(whole(*size_bytes)),
                mode: Some(0o1777),
                ..MountTmpfsOptions::default()
            }),
            ..base(MountType::TMPFS)
        },
    }
}

/// The interface is JSON, so paths are text; what is not is refused by the engine as a path that is not there.
pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(super) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
