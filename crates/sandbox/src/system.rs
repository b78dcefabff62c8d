//! The read-only system that every sandbox of an engine sees: a root directory with nothing but mount points, and an `/etc`
//! made for it. Prepared once, on disk (see `store`), and bound read-only into each sandbox.
//!
//! `/etc` is written, not shared: of the host's files it holds copies of those that programs in `/usr` cannot do without and
//! that say nothing about the host's users, services or secrets. What is not in [`COPIED`] and the like is not there.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use crate::{AGENT_ID, AGENT_NAME, HOME_DIR};

/// The name of every sandbox's machine.
pub(crate) const HOSTNAME: &str = "sandbox";
/// Directories at the root that are links into `/usr` on today's systems, and real ones on older ones.
const MERGED: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
const DIRS: [&str; 16] = [
    "usr",
    "etc",
    "proc",
    "dev",
    "dev/pts",
    "dev/shm",
    "tmp",
    "workspace",
    "home",
    "home/agent",
    "run",
    "run/bulkhead",
    "var",
    "root",
    "mnt",
    "opt",
];
/// The devices that a sandbox has. All of them give and take nothing but bytes; `tty` is whoever's own terminal.
pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Single files of `/etc` that are copied where they are there and readable for everybody.
const COPIED: [&str; 9] = [
    "ld.so.cache",
    "localtime",
    "timezone",
    "os-release",
    "services",
    "protocols",
    "mime.types",
    "magic",
    "ssl/openssl.cnf",
];
/// Where systems keep all authorities they trust in one file.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];
/// Where they are inside.
const BUNDLE: &str = "ssl/certs/ca-certificates.crt";
/// A configuration directory larger than this is not one that a program in `/usr` cannot do without.
const LARGEST_COPY_BYTES: u64 = 4 << 20;

/// A mount point that a plan's bind needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MountPoint {
    Dir(PathBuf),
    File(PathBuf),
}

/// Links at the root, and directories that are bound beside `/usr`.
pub(crate) fn real_dirs() -> Vec<&'static str> {
    let real = |name: &&str| {
        fs::symlink_metadata(Path::new("/").join(name)).is_ok_and(|found| found.is_dir())
    };
    MERGED.into_iter().filter(real).collect()
}

/// Writes the `/etc` of every sandbox.
pub(crate) fn make_etc(etc: &Path, extra_ca_pem: Option<&[u8]>) -> io::Result<()> {
    make_dir(etc)?;
    write_accounts(etc)?;
    copy_from_host(etc)?;
    write_authorities(etc, extra_ca_pem)
}

/// Makes a root directory with these mount points besides the usual ones.
pub(crate) fn make_root_with(root: &Path, more: &[MountPoint]) -> io::Result<()> {
    make_root(root)?;
    more.iter().try_for_each(|point| make_point(root, point))
}

/// Everything of the host that what is made here depends on: whoever looks at these again sees whether it is still right.
pub(crate) fn sources() -> Vec<PathBuf> {
    let etc = Path::new("/etc");
    let mut all: Vec<PathBuf> = MERGED.map(|name| Path::new("/").join(name)).into();
    all.extend(COPIED.map(|name| etc.join(name)));
    all.extend(fs::canonicalize(etc.join("localtime")));
    all.extend(
        BUNDLES
            .iter()
            .filter_map(|path| fs::canonicalize(path).ok()),
    );
    list(&etc.join("alternatives"), &mut all);
    list(&etc.join("ssl/certs"), &mut all);
    java_dirs().iter().for_each(|dir| list(dir, &mut all));
    all
}

fn list(dir: &Path, all: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&entry.path(), all);
        }
        all.push(entry.path());
    }
}

/// The configuration of a Java in /usr/lib/jvm lies there, and no Java starts without it.
fn java_dirs() -> Vec<PathBuf> {
    let is_java = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("java-");
    let entries = fs::read_dir("/etc").into_iter().flatten().flatten();
    let mut dirs: Vec<_> = entries.filter(is_java).map(|entry| entry.path()).collect();
    dirs.sort();
    dirs
}

fn make_root(root: &Path) -> io::Result<()> {
    make_dir(root)?;
    DIRS.iter().try_for_each(|dir| make_dir(&root.join(dir)))?;
    for name in MERGED {
        let outside = Path::new("/").join(name);
        match fs::read_link(&outside) {
            Ok(target) => symlink(target, root.join(name))?,
            Err(_) if outside.is_dir() => make_dir(&root.join(name))?,
            Err(_) => {}
        }
    }
    DEVICES
        .iter()
        .try_for_each(|name| write(&root.join("dev").join(name), b""))?;
    DEVICE_LINKS
        .iter()
        .try_for_each(|(name, target)| symlink(target, root.join("dev").join(name)))?;
    // What a phase is handed from earlier ones lies in the home, on the disk that has a limit.
    symlink(
        Path::new(HOME_DIR).join("artifacts"),
        root.join("run/bulkhead/artifacts"),
    )?;
    symlink("/tmp", root.join("var/tmp"))?;
    symlink("/run", root.join("var/run"))
}

fn make_point(root: &Path, point: &MountPoint) -> io::Result<()> {
    let (MountPoint::Dir(target) | MountPoint::File(target)) = point;
    let relative = target.strip_prefix("/").unwrap_or(target);
    let parents = relative.ancestors().skip(1).collect::<Vec<_>>();
    parents
        .iter()
        .rev()
        .try_for_each(|parent| make_dir(&root.join(parent)))?;
    match point {
        MountPoint::Dir(_) => make_dir(&root.join(relative)),
        MountPoint::File(_) => write(&root.join(relative), b""),
    }
}

/// Made or there already; readable for all, whatever the parent's umask is.
fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        other => other?,
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

fn write_accounts(etc: &Path) -> io::Result<()> {
    let passwd = format!(
        "root:x:0:0:root:/root:/usr/sbin/nologin\n\
         {AGENT_NAME}:x:{AGENT_ID}:{AGENT_ID}:{AGENT_NAME}:{HOME_DIR}:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    let group = format!("root:x:0:\n{AGENT_NAME}:x:{AGENT_ID}:\nnogroup:x:65534:\n");
    let hosts = format!(
        "127.0.0.1 localhost {HOSTNAME}\n::1 localhost ip6-localhost ip6-loopback {HOSTNAME}\n"
    );
    let files = [
        ("passwd", passwd.as_str()),
        ("group", &group),
        ("hosts", &hosts),
        ("hostname", &format!("{HOSTNAME}\n")),
        // The door's DNS listens there (D5).
        (
            "resolv.conf",
            "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n",
        ),
        (
            "nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n",
        ),
        ("shells", "/bin/sh\n/bin/bash\n"),
    ];
    files
        .iter()
        .try_for_each(|(name, text)| write(&etc.join(name), text.as_bytes()))
}

fn copy_from_host(etc: &Path) -> io::Result<()> {
    make_dir(&etc.join("ssl"))?;
    for name in COPIED {
        copy_entry(&Path::new("/etc").join(name), &etc.join(name))?;
    }
    // Links by which Debian chooses between programs; those to manual pages are most of them and not needed.
    copy_dir(
        Path::new("/etc/alternatives"),
        &etc.join("alternatives"),
        |name| !name.ends_with(".gz"),
    )?;
    java_dirs().iter().try_for_each(|dir| {
        let name = dir.file_name().unwrap_or_default();
        copy_dir(dir, &etc.join(name), |_| true)
    })
}

/// Copies a link as a link and a small, public, plain file as a file; anything else is left out.
fn copy_entry(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(from) else {
        return Ok(());
    };
    if found.is_symlink() {
        let target = fs::read_link(from)?;
        // A link to elsewhere in /etc leads to what is not here: then its content counts.
        return if target.starts_with("/etc") && to.file_name() == Some("localtime".as_ref()) {
            copy_plain(&fs::canonicalize(from).unwrap_or_default(), to)
        } else {
            symlink(target, to)
        };
    }
    copy_plain(from, to)
}

fn copy_plain(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(found) = fs::metadata(from) else {
        return Ok(());
    };
    let is_public = found.permissions().mode() & 0o004 != 0;
    if !found.is_file() || !is_public || found.len() > LARGEST_COPY_BYTES {
        return Ok(());
    }
    write(to, &fs::read(from)?)
}

fn copy_dir(from: &Path, to: &Path, wanted: fn(&str) -> bool) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    make_dir(to)?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &to.join(name), wanted)?;
        } else if wanted(&name.to_string_lossy()) {
            copy_entry(&entry.path(), &to.join(name))?;
        }
    }
    Ok(())
}

/// The host's authorities, as the directory and as the file by which libraries look for them, and the operator's in the file.
fn write_authorities(etc: &Path, extra_ca_pem: Option<&[u8]>) -> io::Result<()> {
    copy_dir(Path::new("/etc/ssl/certs"), &etc.join("ssl/certs"), |_| {
        true
    })?;
    make_dir(&etc.join("ssl/certs"))?;
    let mut bundle = BUNDLES
        .iter()
        .find_map(|path| fs::read(path).ok())
        .unwrap_or_default();
    if let Some(extra) = extra_ca_pem {
        bundle.push(b'\n');
        bundle.extend_from_slice(extra);
        write(&etc.join("ssl/certs/bulkhead-operator-ca.pem"), extra)?;
    }
    let path = etc.join(BUNDLE);
    let _ = fs::remove_file(&path);
    write(&path, &bundle)?;
    for alias in ["pki/tls/certs/ca-bundle.crt", "ssl/cert.pem"] {
        let alias = etc.join(alias);
        fs::create_dir_all(alias.parent().unwrap_or(etc))?;
        let _ = fs::remove_file(&alias);
        symlink(Path::new("/etc").join(BUNDLE), alias)?;
    }
    Ok(())
}
