//! What a container's configuration lets its processes reach (H16).

use std::path::{Component, Path};

use super::{
    config::{
        DockerConfig, Mount, MountAccess, Namespace, Network, Privileged, Seccomp, SystemPaths,
    },
    container::{Facts, RootIs},
};
use crate::Layer;

/// Where engines and their runtimes listen.
const SOCKETS: [&str; 7] = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/podman/podman.sock",
    "/var/run/containerd/containerd.sock",
];
/// Directories whose entries are homes.
const HOMES: [&str; 3] = ["/home", "/Users", "/var/home"];

/// What is known before the container is made is in the description; the rest in the facts.
pub(super) fn layer(config: &DockerConfig, host: String, facts: Option<&Facts>) -> Layer {
    Layer {
        kind: "docker",
        host,
        files: files(config),
        network: network(&config.network),
        credentials: "none of the runner's; what the image, the mounts and the environment contain"
            .to_owned(),
        processes: match config.security.pid {
            Namespace::Own => "only those of the container".to_owned(),
            Namespace::Host => "all of the engine's machine".to_owned(),
        },
        weakened: weakened(config, facts),
        supervision: Some(supervision(config)),
    }
}

fn supervision(config: &DockerConfig) -> String {
    let ends =
        "the container, and with it all its processes, ends with the session's connection to it";
    match config.lost_after_seconds {
        None => ends.to_owned(),
        Some(seconds) => format!("{ends}, or after {seconds} s without a word from the session"),
    }
}

fn files(config: &DockerConfig) -> String {
    let mut text = format!("those of the image {}", config.image);
    for mount in &config.mounts {
        let target = mount.target().display();
        let (what, access) = match mount {
            Mount::Bind { source, access, .. } => {
                (format!("{} of the machine", source.display()), *access)
            }
            Mount::Volume { name, access, .. } => (format!("the volume {name}"), *access),
            Mount::Tmpfs { .. } => ("memory".to_owned(), MountAccess::Write),
        };
        let access = match access {
            MountAccess::Read => "read only",
            MountAccess::Write => "writable",
        };
        text.push_str(&format!("; at {target} {what} ({access})"));
    }
    text
}

fn network(network: &Network) -> String {
    match network {
        Network::None => "none".to_owned(),
        Network::Bridge => "whatever the engine's default network reaches".to_owned(),
        Network::Host => "all of the engine's machine, its loopback too".to_owned(),
        Network::Named(name) => format!("whatever the engine's network {name} reaches"),
    }
}

fn weakened(config: &DockerConfig, facts: Option<&Facts>) -> Vec<String> {
    let mut found = Vec::new();
    for mount in &config.mounts {
        if let Mount::Bind { source, access, .. } = mount {
            found.extend(mount_weakens(config, source, *access));
        }
    }
    let security = &config.security;
    if security.privileged == Privileged::Yes {
        found.push("the container is privileged: its root is the machine's root".to_owned());
    }
    match &config.network {
        Network::Host => found.push("it is on the machine's own network".to_owned()),
        Network::Named(name) if name.starts_with("container:") => {
            found.push(format!(
                "it is on the network of another container ({name})"
            ));
        }
        _ => {}
    }
    let shared = [
        (
            security.pid,
            "it sees and can signal the machine's processes",
        ),
        (security.ipc, "it shares the machine's shared memory"),
        (
            security.users,
            "the engine's mapping of users is off for it",
        ),
    ];
    found.extend(
        shared
            .into_iter()
            .filter(|(namespace, _)| *namespace == Namespace::Host)
            .map(|(_, text)| text.to_owned()),
    );
    if !security.add_capabilities.is_empty() {
        let names = security.add_capabilities.join(", ");
        found.push(format!("it has further capabilities: {names}"));
    }
    match &security.seccomp {
        Seccomp::Default => {}
        Seccomp::Unconfined => found.push("its system calls are not filtered".to_owned()),
        Seccomp::Profile(_) => {
            found.push("its system calls are filtered by a profile of its own".to_owned())
        }
    }
    if security.system_paths == SystemPaths::Shown {
        found.push("the kernel's files in /proc and /sys are not hidden from it".to_owned());
    }
    found.extend(root_weakens(config, facts));
    found
}

fn mount_weakens(config: &DockerConfig, source: &Path, access: MountAccess) -> Vec<String> {
    let mut found = Vec::new();
    let source = plain(source);
    let shown = source.display();
    let holds = |inner: &Path| plain(inner).starts_with(&source);
    if holds(&config.socket) || SOCKETS.iter().any(|socket| holds(Path::new(socket))) {
        found.push(format!(
            "{shown} gives it the engine's socket: whoever has that controls the machine"
        ));
    }
    let is_home = HOMES
        .iter()
        .any(|homes| source.parent() == Some(Path::new(homes)) || holds(Path::new(homes)))
        || holds(Path::new("/root"));
    if is_home {
        found.push(format!(
            "{shown} gives it a home directory, with what keys and settings lie there"
        ));
    }
    let is_machines = [
        "/", "/etc", "/usr", "/boot", "/dev", "/proc", "/sys", "/var",
    ]
    .iter()
    .any(|dir| source == Path::new(dir));
    if is_machines && access == MountAccess::Write {
        found.push(format!("it can change {shown} of the machine"));
    }
    found
}

/// Without `.` and `..`, which a path here should not have anyway, and with the usual place of `/var/run`.
fn plain(path: &Path) -> std::path::PathBuf {
    let mut plain = std::path::PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            _ => {}
        }
    }
    match plain.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => plain,
    }
}

fn root_weakens(config: &DockerConfig, facts: Option<&Facts>) -> Option<String> {
    if facts.is_some_and(|facts| facts.root_is == RootIs::Nobody) {
        return None;
    }
    let user = match (facts, &config.user) {
        (Some(facts), _) => facts.user.as_str(),
        (None, Some(user)) => user,
        // The image's own user is not known yet.
        (None, None) => return None,
    };
    let name = user.split(':').next().unwrap_or_default();
    matches!(name, "" | "0" | "root").then(|| {
        "its processes are root: within the container's walls, but with root's id on the machine".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut DockerConfig);

    fn bind(source: &str, access: MountAccess) -> DockerConfig {
        let mut config = DockerConfig::new("image");
        config.user = Some("1000".to_owned());
        config.mounts = vec![Mount::Bind {
            source: source.into(),
            target: "/x".into(),
            access,
        }];
        config
    }

    fn of(config: &DockerConfig) -> String {
        layer(config, "docker".to_owned(), None).weakened.join("\n")
    }

    #[test]
    fn h16_a_plain_container_is_weakened_by_nothing() {
        for source in ["/srv/data", "/home2/x", "/opt/../srv", "/root2"] {
            assert_eq!(of(&bind(source, MountAccess::Write)), "", "{source}");
        }
    }

    #[test]
    fn h16_mounts_that_defeat_isolation_are_named_however_they_are_written() {
        for source in [
            "/var/run/docker.sock",
            "/run/docker.sock",
            "/run",
            "/",
            "/srv/../run/podman",
        ] {
            let said = of(&bind(source, MountAccess::Read));
            assert!(said.contains("the engine's socket"), "{source}: {said}");
        }
        for source in ["/root", "/home", "/home/ann", "/", "/home/ann/"] {
            let said = of(&bind(source, MountAccess::Read));
            assert!(said.contains("a home directory"), "{source}: {said}");
        }
        assert!(of(&bind("/etc", MountAccess::Write)).contains("it can change /etc"));
        let mut elsewhere = bind("/srv/engine", MountAccess::Read);
        elsewhere.socket = "/srv/engine/sock".into();
        assert!(of(&elsewhere).contains("the engine's socket"));
    }

    #[test]
    fn h16_every_option_that_weakens_is_named() {
        let changes: [(&str, Change); 10] = [
            ("privileged", |c| c.security.privileged = Privileged::Yes),
            ("own network", |c| c.network = Network::Host),
            ("another container", |c| {
                c.network = Network::Named("container:x".to_owned())
            }),
            ("processes", |c| c.security.pid = Namespace::Host),
            ("shared memory", |c| c.security.ipc = Namespace::Host),
            ("mapping of users", |c| c.security.users = Namespace::Host),
            ("SYS_ADMIN", |c| {
                c.security.add_capabilities = vec!["SYS_ADMIN".to_owned()]
            }),
            ("not filtered", |c| c.security.seccomp = Seccomp::Unconfined),
            ("/proc", |c| c.security.system_paths = SystemPaths::Shown),
            ("root", |c| c.user = Some("0:0".to_owned())),
        ];
        for (word, change) in changes {
            let mut config = bind("/srv", MountAccess::Read);
            change(&mut config);
            let said = of(&config);
            assert!(
                said.contains(word) && !said.contains('\n'),
                "{word}: {said}"
            );
        }
    }

    #[test]
    fn h16_an_image_whose_user_is_root_shows_once_it_is_known() {
        let config = DockerConfig::new("image");
        assert_eq!(of(&config), "");
        let mut facts = Facts {
            user: String::new(),
            root_is: RootIs::Root,
        };
        let said = |facts: &Facts| layer(&config, String::new(), Some(facts)).weakened.len();
        assert_eq!(said(&facts), 1);
        facts.root_is = RootIs::Nobody;
        assert_eq!(said(&facts), 0);
    }
}
