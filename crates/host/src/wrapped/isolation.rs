//! What a wrapped sandbox lets its processes reach (H16).

use std::path::{Path, PathBuf};

use super::{
    config::{WrapConfig, WrapNetwork},
    walls::NestedNamespaces,
};
use crate::Layer;

/// What it is not good to give away, and what it is.
const PRECIOUS: [(&str, &str); 9] = [
    ("/root", "a home directory"),
    ("/home", "a home directory"),
    ("/Users", "a home directory"),
    ("/var/home", "a home directory"),
    ("/etc", "the machine's settings, keys among them"),
    ("/run", "sockets of the machine's services"),
    ("/var/run", "sockets of the machine's services"),
    ("/proc", "the machine's processes"),
    ("/sys", "the machine's devices"),
];

pub(super) fn layer(config: &WrapConfig, host: String, nested: Option<NestedNamespaces>) -> Layer {
    Layer {
        kind: "sandbox",
        host,
        files: files(config),
        network: match config.network {
            WrapNetwork::None => "none".to_owned(),
            WrapNetwork::Host => "that of the host before it".to_owned(),
        },
        credentials: "none of the runner's; what the paths above and the environment contain"
            .to_owned(),
        processes: "only those of the sandbox".to_owned(),
        weakened: weakened(config, nested),
        supervision: Some(supervision(config)),
    }
}

fn files(config: &WrapConfig) -> String {
    let mut text =
        "the machine's programs and libraries (read only), a home and a /tmp in memory".to_owned();
    for (paths, access) in [
        (&config.readable, "read only"),
        (&config.writable, "writable"),
    ] {
        for path in paths {
            text.push_str(&format!("; {} ({access})", path.display()));
        }
    }
    for path in &config.hidden {
        text.push_str(&format!("; {} (hidden)", path.display()));
    }
    text
}

fn supervision(config: &WrapConfig) -> String {
    let ends =
        "the sandbox, and with it all its processes, ends with the session's connection to it";
    match config.lost_after_seconds {
        None => ends.to_owned(),
        Some(seconds) => format!("{ends}, or after {seconds} s without a word from the session"),
    }
}

fn weakened(config: &WrapConfig, nested: Option<NestedNamespaces>) -> Vec<String> {
    let mut found = vec![
        "memory, processor time, processes and disk have no limits of the sandbox's own".to_owned(),
    ];
    if nested == Some(NestedNamespaces::Possible) {
        found.push(
            "bubblewrap there is too old to forbid namespaces of the processes' own".to_owned(),
        );
    }
    if config.network == WrapNetwork::Host {
        found.push("it is on the host's network, loopback included".to_owned());
    }
    for path in config.readable.iter().chain(&config.writable) {
        found.extend(path_weakens(config, path));
    }
    found
}

fn path_weakens(config: &WrapConfig, path: &Path) -> Vec<String> {
    let shown = path.display();
    let opens = |inside: &Path| inside.starts_with(path) || is_in_home(inside, path);
    let is_hidden = |inside: &Path| {
        config
            .hidden
            .iter()
            .any(|hidden| inside.starts_with(hidden))
    };
    let mut what: Vec<&str> = PRECIOUS
        .iter()
        .filter(|(inside, _)| opens(Path::new(inside)) && !is_hidden(Path::new(inside)))
        .map(|(_, what)| *what)
        .collect();
    what.dedup();
    what.into_iter()
        .map(|what| format!("{shown} gives it {what}"))
        .collect()
}

/// Whether a path is somebody's home in a directory of homes.
fn is_in_home(homes: &Path, path: &Path) -> bool {
    let homes_of_many = ["/home", "/Users", "/var/home"].map(PathBuf::from);
    homes_of_many.contains(&homes.to_owned()) && path.parent() == Some(homes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(config: &WrapConfig) -> Vec<String> {
        let found = weakened(config, Some(NestedNamespaces::Impossible));
        found.into_iter().skip(1).collect()
    }

    #[test]
    fn h16_what_is_open_shows_and_what_is_hidden_again_does_not() {
        let mut config = WrapConfig {
            readable: vec!["/srv".into()],
            writable: vec!["/work".into()],
            ..WrapConfig::default()
        };
        assert_eq!(of(&config), Vec::<String>::new());
        config.writable = vec!["/home/ann".into()];
        assert_eq!(of(&config), ["/home/ann gives it a home directory"]);
        config.writable = vec!["/".into()];
        assert_eq!(of(&config).len(), 5);
        config.hidden = [
            "/home",
            "/root",
            "/Users",
            "/var/home",
            "/etc",
            "/run",
            "/var/run",
            "/proc",
            "/sys",
        ]
        .map(PathBuf::from)
        .to_vec();
        assert_eq!(of(&config), Vec::<String>::new());
        config.network = WrapNetwork::Host;
        assert_eq!(
            of(&config),
            ["it is on the host's network, loopback included"]
        );
    }
}
