//! The plugs that are hosts.

use super::{
    DockerConfig, Engine, HostPlug, LocalConfig, Mount, ResourceLimits, SandboxConfig, SshConfig,
};
use crate::workflow::{
    node::Value,
    reader::{Field, Fields, Reader},
    settings,
};

const LOCAL_FIELDS: &[&str] = &["directory"];
const SANDBOX_FIELDS: &[&str] = &["resources", "network", "readOnly", "timeout"];
const DOCKER_FIELDS: &[&str] = &[
    "image",
    "engine",
    "socket",
    "runtime",
    "user",
    "workdir",
    "network",
    "mounts",
    "env",
    "resources",
    "privileged",
    "sandboxInside",
];
const MOUNT_FIELDS: &[&str] = &["source", "target", "readOnly"];
const CONTAINER_FIELDS: &[&str] = &["cpus", "memory", "pids"];
const SSH_FIELDS: &[&str] = &["host", "persistent", "directory", "configFile"];

pub(super) fn reader_fields() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("Local", LOCAL_FIELDS.to_vec()),
        ("Sandbox", SANDBOX_FIELDS.to_vec()),
        ("Resources", settings::RESOURCE_FIELDS.to_vec()),
        ("Network", settings::NETWORK_FIELDS.to_vec()),
        ("Docker", DOCKER_FIELDS.to_vec()),
        ("DockerMount", MOUNT_FIELDS.to_vec()),
        ("ContainerResources", CONTAINER_FIELDS.to_vec()),
        ("Ssh", SSH_FIELDS.to_vec()),
    ]
}

pub(super) fn local(reader: &mut Reader<'_>, field: Option<&Field<'_>>) -> Option<HostPlug> {
    let Some(field) = field else {
        return Some(HostPlug::Local(LocalConfig::default()));
    };
    let fields = reader.fields(field, LOCAL_FIELDS)?;
    let directory = fields.get("directory");
    Some(HostPlug::Local(LocalConfig {
        directory: directory.and_then(|field| reader.text(&field)),
    }))
}

pub(super) fn sandbox(reader: &mut Reader<'_>, field: Option<&Field<'_>>) -> Option<HostPlug> {
    let mut config = SandboxConfig {
        limits: settings::PartialLimits::default().over(&settings::PartialLimits::default()),
        network: crate::NetworkPolicy::default(),
        read_only: vec![],
    };
    let Some(field) = field else {
        return Some(HostPlug::Sandbox(config));
    };
    let fields = reader.fields(field, SANDBOX_FIELDS)?;
    config.limits = settings::limits(reader, &fields).over(&settings::PartialLimits::default());
    if let Some(field) = fields.get("network") {
        config.network = settings::network(reader, &field)?;
    }
    if let Some(field) = fields.get("readOnly") {
        for item in reader.list(&field) {
            config.read_only.extend(absolute(reader, &item));
        }
    }
    Some(HostPlug::Sandbox(config))
}

pub(super) fn docker(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<HostPlug> {
    if let Value::Text(_) = field.node.value {
        return Some(HostPlug::Docker(plain_docker(reader.line(field)?)));
    }
    let fields = reader.fields(field, DOCKER_FIELDS)?;
    let image = reader.required(&fields, "image");
    let mut config = plain_docker(image.and_then(|field| reader.line(&field))?);
    if let Some(field) = fields.get("engine") {
        let engines = [("docker", Engine::Docker), ("podman", Engine::Podman)];
        config.engine = reader.choice(&field, "engine", &engines)?;
    }
    let mut line = |name: &str| {
        let field = fields.get(name)?;
        reader.line(&field)
    };
    config.runtime = line("runtime");
    config.user = line("user");
    config.network = line("network");
    let mut path = |name: &str| absolute(reader, &fields.get(name)?);
    config.socket = path("socket");
    config.workdir = path("workdir");
    if let Some(field) = fields.get("mounts") {
        for item in reader.list(&field) {
            config.mounts.extend(mount(reader, &item));
        }
    }
    if let Some(field) = fields.get("env") {
        config.env = super::plugs::env(reader, &field);
    }
    if let Some(field) = fields.get("resources") {
        config.limits = resources(reader, &field);
    }
    if let Some(field) = fields.get("privileged") {
        config.privileged = reader.truth(&field)?;
    }
    if let Some(field) = fields.get("sandboxInside") {
        config.sandbox_inside = reader.truth(&field)?;
    }
    Some(HostPlug::Docker(config))
}

const fn plain_docker(image: String) -> DockerConfig {
    DockerConfig {
        image,
        socket: None,
        engine: Engine::Docker,
        runtime: None,
        user: None,
        workdir: None,
        network: None,
        mounts: vec![],
        env: std::collections::BTreeMap::new(),
        limits: ResourceLimits {
            cpu_milli: None,
            memory_bytes: None,
            pids: None,
        },
        privileged: false,
        sandbox_inside: false,
    }
}

fn mount(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Mount> {
    let fields = reader.fields(field, MOUNT_FIELDS)?;
    let source = reader.required(&fields, "source");
    let source = source.and_then(|field| reader.text(&field));
    let target = reader.required(&fields, "target");
    let target = target.and_then(|field| absolute(reader, &field));
    let read_only = match fields.get("readOnly") {
        Some(field) => reader.truth(&field)?,
        None => false,
    };
    Some(Mount {
        source: source?,
        target: target?,
        read_only,
    })
}

fn resources(reader: &mut Reader<'_>, field: &Field<'_>) -> ResourceLimits {
    let mut limits = ResourceLimits::default();
    let Some(fields) = reader.fields(field, CONTAINER_FIELDS) else {
        return limits;
    };
    if let Some(field) = fields.get("cpus") {
        let milli = reader.decimal(&field, 1_000, 1_024, "a number of CPUs");
        limits.cpu_milli = milli.and_then(|milli| u32::try_from(milli).ok());
    }
    if let Some(field) = fields.get("memory") {
        limits.memory_bytes = reader.size(&field, 16 << 20..=1 << 44);
    }
    if let Some(field) = fields.get("pids") {
        limits.pids = reader.whole(&field, 8..=1_000_000);
    }
    limits
}

pub(super) fn ssh(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<HostPlug> {
    if let Value::Text(_) = field.node.value {
        let host = ssh_name(reader, field)?;
        return Some(HostPlug::Ssh(SshConfig {
            host,
            persistent: false,
            directory: None,
            config_file: None,
        }));
    }
    let fields = reader.fields(field, SSH_FIELDS)?;
    let host = reader.required(&fields, "host");
    let host = host.and_then(|field| ssh_name(reader, &field));
    let persistent = match fields.get("persistent") {
        Some(field) => reader.truth(&field)?,
        None => false,
    };
    let directory = text(reader, &fields, "directory");
    let config_file = text(reader, &fields, "configFile");
    Some(HostPlug::Ssh(SshConfig {
        host: host?,
        persistent,
        directory,
        config_file,
    }))
}

/// A name that begins with a dash would be an option of the command that gets it.
fn ssh_name(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let host = reader.line(field)?;
    if host.starts_with('-') || host.contains(char::is_whitespace) {
        reader.problem(
            field,
            "expected a host as `ssh` takes it: NAME or USER@NAME",
        );
        return None;
    }
    Some(host)
}

pub(super) fn text(reader: &mut Reader<'_>, fields: &Fields<'_>, name: &str) -> Option<String> {
    let field = fields.get(name)?;
    reader.text(&field)
}

/// A path that begins at the root.
pub(super) fn absolute(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let path = reader.text(field)?;
    if !path.starts_with('/') {
        reader.problem(
            field,
            "expected an absolute path, one that begins with a slash",
        );
        return None;
    }
    Some(path)
}
