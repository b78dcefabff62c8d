//! What the engine has made, against what was asked for: an engine may drop what it does not know or cannot do.

use bollard::models::{ContainerInspectResponse, HostConfig};

use super::{
    config::{
        DockerConfig, Mount, MountAccess, Namespace, NoNewPrivileges, Privileged, Root, Seccomp,
    },
    request::{text, whole},
};

/// Everything that differs, in words; nothing when the container is the one that was asked for.
pub(super) fn differences(config: &DockerConfig, made: &ContainerInspectResponse) -> Vec<String> {
    let mut found = Vec::new();
    let Some(host) = &made.host_config else {
        return vec!["it does not say what it made".to_owned()];
    };
    limits(config, host, &mut found);
    namespaces(config, host, &mut found);
    rights(config, host, &mut found);
    mounts(config, made, &mut found);
    found
}

fn limits(config: &DockerConfig, host: &HostConfig, found: &mut Vec<String>) {
    let asked = &config.limits;
    let mut check = |what: &str, asked: Option<i64>, made: Option<i64>| {
        if asked.is_some() && asked != made {
            found.push(format!(
                "the limit of {what} is {made:?} instead of {asked:?}"
            ));
        }
    };
    check("memory", asked.memory_bytes.map(whole), host.memory);
    check("processes", asked.processes.map(i64::from), host.pids_limit);
    let nano_cpus = asked.cpu_millis.map(|millis| i64::from(millis) * 1_000_000);
    check("processor time", nano_cpus, made_nano_cpus(host));
}

/// Podman keeps the quota that it made of it.
fn made_nano_cpus(host: &HostConfig) -> Option<i64> {
    match (host.nano_cpus, host.cpu_quota, host.cpu_period) {
        (Some(nano_cpus), _, _) if nano_cpus != 0 => Some(nano_cpus),
        (_, Some(quota), Some(period)) if period > 0 => Some(quota * 1_000_000_000 / period),
        (nano_cpus, _, _) => nano_cpus,
    }
}

fn namespaces(config: &DockerConfig, host: &HostConfig, found: &mut Vec<String>) {
    let network = host.network_mode.as_deref().unwrap_or_default();
    let asked = config.network.mode();
    let is_default = asked == "bridge" && matches!(network, "default" | "bridge");
    if network != asked && !is_default {
        found.push(format!("its network is {network:?} instead of {asked:?}"));
    }
    let modes = [
        ("processes", config.security.pid, &host.pid_mode),
        ("shared memory", config.security.ipc, &host.ipc_mode),
        ("user ids", config.security.users, &host.userns_mode),
    ];
    for (what, asked, made) in modes {
        let is_shared = made.as_deref() == Some("host");
        if asked == Namespace::Own && is_shared {
            found.push(format!("it shares the machine's {what}"));
        }
    }
}

fn rights(config: &DockerConfig, host: &HostConfig, found: &mut Vec<String>) {
    let security = &config.security;
    if host.privileged == Some(true) && security.privileged == Privileged::No {
        found.push("it is privileged".to_owned());
    }
    if host.readonly_rootfs != Some(true) && config.root == Root::ReadOnly {
        found.push("its root is writable".to_owned());
    }
    if let Some(runtime) = &config.runtime
        && host.runtime.as_ref() != Some(runtime)
    {
        found.push(format!(
            "its runtime is {:?} instead of {runtime:?}",
            host.runtime
        ));
    }
    let options = host.security_opt.as_deref().unwrap_or_default();
    let has = |wanted: &str| options.iter().any(|option| option.starts_with(wanted));
    if security.no_new_privileges == NoNewPrivileges::Yes && !has("no-new-privileges") {
        found.push("its programs may gain rights".to_owned());
    }
    if security.seccomp == Seccomp::Default && has("seccomp=unconfined") {
        found.push("its system calls are not filtered".to_owned());
    }
    // An engine may say the list of what `ALL` means, but never nothing.
    if !security.drop_capabilities.is_empty()
        && host.cap_drop.as_deref().unwrap_or_default().is_empty()
    {
        found.push("its capabilities were not dropped".to_owned());
    }
    let added = host.cap_add.as_deref().unwrap_or_default();
    if security.add_capabilities.is_empty() && !added.is_empty() {
        found.push(format!("it has further capabilities: {}", added.join(", ")));
    }
}

fn mounts(config: &DockerConfig, made: &ContainerInspectResponse, found: &mut Vec<String>) {
    let points = made.mounts.as_deref().unwrap_or_default();
    for mount in &config.mounts {
        let target = text(mount.target());
        let point = points
            .iter()
            .find(|point| point.destination.as_ref() == Some(&target));
        match (mount, point) {
            // Engines do not list these among the mounts.
            (Mount::Tmpfs { .. }, _) => {}
            (_, None) => found.push(format!("nothing is mounted at {target}")),
            (Mount::Bind { access, .. } | Mount::Volume { access, .. }, Some(point)) => {
                if *access == MountAccess::Read && point.rw == Some(true) {
                    found.push(format!("{target} is writable"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::MountPoint;

    use super::*;
    use crate::docker::{
        config::ContainerLimits,
        request::{Kind, create_body},
    };

    fn made(config: &DockerConfig) -> ContainerInspectResponse {
        let asked = create_body(config, Kind::Docker);
        ContainerInspectResponse {
            host_config: asked.host_config,
            mounts: Some(vec![MountPoint {
                destination: Some("/data".to_owned()),
                rw: Some(false),
                ..MountPoint::default()
            }]),
            ..ContainerInspectResponse::default()
        }
    }

    fn config() -> DockerConfig {
        let mut config = DockerConfig::new("image");
        config.limits = ContainerLimits {
            memory_bytes: Some(1 << 30),
            cpu_millis: Some(1500),
            processes: Some(64),
        };
        config.root = Root::ReadOnly;
        config.runtime = Some("runsc".to_owned());
        config.security.no_new_privileges = NoNewPrivileges::Yes;
        config.security.drop_capabilities = vec!["ALL".to_owned()];
        config.mounts = vec![Mount::Bind {
            source: "/srv".into(),
            target: "/data".into(),
            access: MountAccess::Read,
        }];
        config
    }

    #[test]
    fn h12_what_was_asked_for_is_accepted() {
        assert_eq!(
            differences(&config(), &made(&config())),
            Vec::<String>::new()
        );
    }

    #[test]
    fn h12_whatever_the_engine_left_out_is_named() {
        let changes: [fn(&mut HostConfig); 11] = [
            |host| host.memory = Some(0),
            |host| host.nano_cpus = None,
            |host| host.pids_limit = None,
            |host| host.network_mode = Some("bridge".to_owned()),
            |host| host.privileged = Some(true),
            |host| host.readonly_rootfs = Some(false),
            |host| host.runtime = Some("runc".to_owned()),
            |host| host.security_opt = None,
            |host| host.cap_drop = None,
            |host| host.cap_add = Some(vec!["SYS_ADMIN".to_owned()]),
            |host| host.pid_mode = Some("host".to_owned()),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut made = made(&config());
            change(made.host_config.as_mut().expect("it is there"));
            assert_eq!(differences(&config(), &made).len(), 1, "change {index}");
        }
        let mut writable = made(&config());
        writable.mounts.as_mut().expect("it is there")[0].rw = Some(true);
        assert_eq!(differences(&config(), &writable), ["/data is writable"]);
        writable.mounts = None;
        assert_eq!(
            differences(&config(), &writable),
            ["nothing is mounted at /data"]
        );
    }
}
