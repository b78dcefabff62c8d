//! The walls, as bubblewrap's arguments, and the two shell programs around it.

use std::path::{Path, PathBuf};

use super::config::{WrapConfig, WrapNetwork};
use crate::holder;

/// Where the helper is inside.
pub(super) const HELPER: &str = "/.bulkhead/init";
pub(super) const HOME: &str = "/home/agent";
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The machine's programs and what they need, where it has them. Of `/etc` nothing that could be a secret: who is root
/// outside could read all of it here too.
const SYSTEM: [&str; 26] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
];

/// Looks at the machine, and takes the helper and the filter (the last `$1` bytes) into a directory of its own.
/// `$2` is the architecture that the helper is for; the rest are paths that it says the kinds of.
pub(super) const PREPARE: &str = r#"
umask 077
length=$1 needs=$2
shift 2
machine=$(uname -m)
[ "$(uname -s) $machine" = "Linux $needs" ] || { echo "machine $(uname -s) $machine"; exit 0; }
command -v bwrap >/dev/null 2>&1 || { echo "missing"; exit 0; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/bulkhead.XXXXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
cat >"$dir/init" && tail -c "$length" "$dir/init" >"$dir/filter" || exit 1
if bwrap --help 2>&1 | grep -q -e --disable-userns; then echo "userns closed"; else echo "userns open"; fi
for path in "$@"; do
    if [ -d "$path" ]; then echo "kind directory"; elif [ -e "$path" ]; then echo "kind file"; else echo "kind none"; fi
done
trap - EXIT
echo "ready $dir"
"#;

/// Opens what [`PREPARE`] has left, takes it away, and becomes bubblewrap.
pub(super) const START: &str = r#"
dir=$1
shift
exec 3<"$dir/init" 4<"$dir/filter" || exit 1
rm -rf "$dir"
exec bwrap "$@"
"#;

/// What [`PREPARE`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prepared {
    pub(super) dir: String,
    pub(super) nested: NestedNamespaces,
    /// Of the hidden paths, in their order.
    pub(super) kinds: Vec<Kind>,
}

/// Whether processes inside can make namespaces, and so reach more of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NestedNamespaces {
    Possible,
    Impossible,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
    None,
}

/// Bubblewrap's arguments. Later mounts lie over earlier ones, so what is shallow comes first.
pub(super) fn arguments(config: &WrapConfig, prepared: &Prepared) -> Vec<String> {
    let mut out = Arguments(Vec::new());
    out.add([
        "--unshare-all",
        "--unshare-user",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
    ]);
    out.add([
        "--cap-drop",
        "ALL",
        "--hostname",
        "sandbox",
        "--seccomp",
        "4",
        "--clearenv",
    ]);
    if config.network == WrapNetwork::Host {
        out.add(["--share-net"]);
    }
    if prepared.nested == NestedNamespaces::Impossible {
        out.add(["--disable-userns"]);
    }
    for path in SYSTEM {
        out.add(["--ro-bind-try", path, path]);
    }
    out.add(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run"]);
    for path in ["/tmp", "/var/tmp"] {
        out.add(["--perms", "1777", "--tmpfs", path]);
    }
    out.add(["--dir", HOME, "--tmpfs", HOME]);
    out.binds(config);
    for (path, kind) in config.hidden.iter().zip(&prepared.kinds) {
        match kind {
            Kind::Directory => out.add(["--tmpfs", &text(path), "--remount-ro", &text(path)]),
            Kind::File => out.add(["--ro-bind", "/dev/null", &text(path)]),
            Kind::None => {}
        }
    }
    out.add(["--perms", "0555", "--ro-bind-data", "3", HELPER]);
    out.add(["--remount-ro", "/"]);
    out.environment(config);
    let workdir = config
        .workdir
        .as_deref()
        .map_or_else(|| HOME.to_owned(), text);
    out.add(["--chdir", &workdir, "--", HELPER]);
    out.0.extend(holder::arguments(super::lost_after(config)));
    out.0
}

struct Arguments(Vec<String>);

impl Arguments {
    fn add<const N: usize>(&mut self, arguments: [&str; N]) {
        self.0.extend(arguments.map(str::to_owned));
    }

    fn binds(&mut self, config: &WrapConfig) {
        let readable = config.readable.iter().map(|path| ("--ro-bind", path));
        let writable = config.writable.iter().map(|path| ("--bind", path));
        let mut binds: Vec<(&str, &PathBuf)> = readable.chain(writable).collect();
        binds.sort_by_key(|(_, path)| path.components().count());
        for (kind, path) in binds {
            self.add([kind, &text(path), &text(path)]);
        }
    }

    fn environment(&mut self, config: &WrapConfig) {
        let own = [("PATH", SEARCH_PATH), ("HOME", HOME), ("LANG", "C.UTF-8")];
        for (name, value) in own {
            self.add(["--setenv", name, value]);
        }
        for (name, value) in &config.env {
            self.add(["--setenv", name, value]);
        }
    }
}

/// [`WrapConfig::bad_path`] has seen to it that it is text.
pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
