//! H9: the same failing operations, once by system calls of this process and once over SFTP, in two equal directories.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use bulkhead_host::{Access, FsError, OpenFlags, Provider};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps},
    io::Errno,
};

/// One operation that fails, or does not.
#[derive(Debug, Clone)]
enum Case {
    Open(&'static str, OpenFlags),
    ReadOpened(&'static str),
    Stat(&'static str, Follow),
    List(&'static str),
    MakeDirectory(&'static str),
    RemoveDirectory(&'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    Symlink(&'static str),
    ReadLink(&'static str),
    Realpath(&'static str),
    Chmod(&'static str),
    Chown(&'static str),
    Utimes(&'static str),
    Truncate(&'static str, OpenFlags),
}

use Case::*;
use bulkhead_host::Follow::{self, No, Yes};

const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    append: false,
    create: false,
    exclusive: false,
    truncate: false,
};
const WRITE: OpenFlags = OpenFlags {
    read: false,
    write: true,
    ..READ
};
const CREATE: OpenFlags = OpenFlags {
    create: true,
    ..WRITE
};
const EXCLUSIVE: OpenFlags = OpenFlags {
    exclusive: true,
    ..CREATE
};

const LONG: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let paths = [
        "",
        "absent",
        "absent/x",
        "file",
        "file/",
        "file/x",
        "dir",
        "dir/",
        "dir/x",
        "full",
        "full/inner/x",
        "loop",
        "loop/x",
        "dangling",
        "dangling/x",
        "to-dir",
        "to-dir/",
        "to-dir/x",
        "to-file",
        "to-file/x",
        "to-file/",
        ".",
        "..",
        "socket",
        "via-loop",
        LONG,
        "/",
        "/proc/self/nothing",
    ];
    for path in paths {
        all.extend([
            Open(path, READ),
            Open(path, WRITE),
            ReadOpened(path),
            Stat(path, Yes),
            Stat(path, No),
            List(path),
            ReadLink(path),
            Realpath(path),
        ]);
    }
    for path in &paths[..paths.len() - 2] {
        all.extend([
            Open(path, EXCLUSIVE),
            Open(path, CREATE),
            MakeDirectory(path),
            Symlink(path),
            Chmod(path),
            Chown(path),
            Utimes(path),
        ]);
    }
    for path in [
        "", "absent", "absent/x", "file/x", "dir", "full", "loop/x", "to-dir", ".", "/", LONG,
    ] {
        all.push(Unlink(path));
    }
    for path in [
        "", "absent", "absent/x", "file", "file/x", "full", "loop", "to-dir", LONG, "/",
    ] {
        all.push(RemoveDirectory(path));
    }
    for (from, to) in [
        ("absent", "x"),
        ("file", "absent/x"),
        ("file", "dir"),
        ("file", "full"),
        ("dir", "file"),
        ("dir", "full"),
        ("full", "full/inner/x"),
        ("file", "file/x"),
        ("absent/x", "file"),
        ("file/x", "y"),
        ("full/inner", "full"),
        ("file", "/dev/shm"),
        ("file", "/dev/shm/bulkhead-test-sftp-absent"),
        ("", "x"),
        ("file", ""),
        ("loop/x", "y"),
        ("file", LONG),
        ("file", "loop/x"),
        ("dir", "to-file"),
        ("absent", "dir"),
        ("dir", "absent/x"),
    ] {
        all.push(Rename(from, to));
    }
    for (from, to) in [
        ("absent", "x"),
        ("file", "dir"),
        ("file", "to-file"),
        ("dir", "x"),
        ("file", "absent/x"),
        ("file", "file/x"),
        ("file", "/dev/shm/bulkhead-test-sftp-absent"),
        ("", "x"),
        ("file", ""),
        ("loop/x", "y"),
        ("file", LONG),
    ] {
        all.push(Link(from, to));
    }
    all.extend([Truncate("file", READ), Truncate("file", WRITE)]);
    all
}

fn furnish(dir: &Path) {
    fs::write(dir.join("file"), "words").unwrap();
    fs::create_dir(dir.join("dir")).unwrap();
    fs::create_dir_all(dir.join("full/inner")).unwrap();
    for (target, link) in [
        ("loop", "loop"),
        ("absent", "dangling"),
        ("dir", "to-dir"),
        ("file", "to-file"),
        ("loop/x", "via-loop"),
    ] {
        symlink(target, dir.join(link)).unwrap();
    }
    drop(std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap());
}

fn at(dir: &Path, name: &str) -> PathBuf {
    match name {
        "" => PathBuf::new(),
        // A join drops nothing: a slash at the end, say.
        _ if name.starts_with('/') => name.into(),
        _ => format!("{}/{name}", dir.display()).into(),
    }
}

type Outcome = Result<(), Errno>;

fn by_kernel(dir: &Path, case: &Case) -> Outcome {
    let flags = |flags: OpenFlags| {
        let mut bits = match (flags.read, flags.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        bits.set(OFlags::CREATE, flags.create);
        bits.set(OFlags::EXCL, flags.exclusive);
        bits
    };
    let open = |path: &str, bits| rustix::fs::open(at(dir, path), bits, Mode::from_raw_mode(0o644));
    let now = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    match *case {
        Open(path, how) => open(path, flags(how)).map(drop),
        ReadOpened(path) => {
            let file = open(path, OFlags::RDONLY)?;
            rustix::io::read(file, &mut [0; 4]).map(drop)
        }
        Stat(path, Yes) => rustix::fs::stat(at(dir, path)).map(drop),
        Stat(path, No) => rustix::fs::lstat(at(dir, path)).map(drop),
        List(path) => open(path, OFlags::RDONLY | OFlags::DIRECTORY).map(drop),
        MakeDirectory(path) => rustix::fs::mkdir(at(dir, path), Mode::from_raw_mode(0o755)),
        RemoveDirectory(path) => rustix::fs::rmdir(at(dir, path)),
        Unlink(path) => rustix::fs::unlink(at(dir, path)),
        Rename(from, to) => rustix::fs::rename(at(dir, from), at(dir, to)),
        Link(from, to) => rustix::fs::link(at(dir, from), at(dir, to)),
        Symlink(path) => rustix::fs::symlink("target", at(dir, path)),
        ReadLink(path) => rustix::fs::readlink(at(dir, path), Vec::new()).map(drop),
        Realpath(path) => {
            if path.is_empty() {
                return Err(Errno::NOENT);
            }
            let real = fs::canonicalize(at(dir, path));
            real.map(drop)
                .map_err(|error| Errno::from_io_error(&error).unwrap())
        }
        Chmod(path) => rustix::fs::chmod(at(dir, path), Mode::from_raw_mode(0o755)),
        Chown(path) => rustix::fs::chown(at(dir, path), None, None),
        Utimes(path) => rustix::fs::utimensat(
            CWD,
            at(dir, path),
            &Timestamps {
                last_access: now,
                last_modification: now,
            },
            AtFlags::empty(),
        ),
        Truncate(path, how) => rustix::fs::ftruncate(open(path, flags(how))?, 1),
    }
}

async fn by_provider(dir: &Path, case: &Case, fs: &dyn Provider) -> Result<(), FsError> {
    let path = |name: &str| at(dir, name);
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
    let (uid, gid) = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    match *case {
        Open(name, how) => fs.open(&path(name), how, 0o644).await.map(drop),
        ReadOpened(name) => {
            let file = fs.open(&path(name), READ, 0).await?;
            file.read_at(0, 4).await.map(drop)
        }
        Stat(name, follow) => fs.stat(&path(name), follow).await.map(drop),
        List(name) => fs.readdir(&path(name)).await.map(drop),
        MakeDirectory(name) => fs.mkdir(&path(name), 0o755).await,
        RemoveDirectory(name) => fs.rmdir(&path(name)).await,
        Unlink(name) => fs.unlink(&path(name)).await,
        Rename(from, to) => fs.rename(&path(from), &path(to)).await,
        Link(from, to) => fs.link(&path(from), &path(to)).await,
        Symlink(name) => fs.symlink(Path::new("target"), &path(name)).await,
        ReadLink(name) => fs.readlink(&path(name)).await.map(drop),
        Realpath(name) => fs.realpath(&path(name)).await.map(drop),
        Chmod(name) => fs.chmod(&path(name), 0o755).await,
        Chown(name) => fs.chown(&path(name), uid, gid, Yes).await,
        Utimes(name) => fs.utimes(&path(name), then, then, Yes).await,
        Truncate(name, how) => {
            let file = fs.open(&path(name), how, 0).await?;
            file.truncate(1).await
        }
    }
}

/// Runs every case in a furnished directory of its own on each side.
pub(crate) async fn compare(open: impl Fn(&Path) -> bulkhead_host::SftpProvider) {
    let root = tempfile::tempdir().unwrap();
    let fs = open(root.path());
    let mut wrong = Vec::new();
    for (number, case) in cases().into_iter().enumerate() {
        let [here, there] =
            ["kernel", "sftp"].map(|side| root.path().join(format!("{number}-{side}")));
        for dir in [&here, &there] {
            fs::create_dir(dir).unwrap();
            furnish(dir);
        }
        let expected = by_kernel(&here, &case);
        let got = by_provider(&there, &case, &fs).await;
        let got = got.map_err(|error| error.code.errno());
        if got != expected {
            wrong.push(format!(
                "{case:?}: the kernel says {expected:?}, got {got:?}"
            ));
        }
        for dir in [&here, &there] {
            let _ = fs::set_permissions(dir.join("dir"), fs::Permissions::from_mode(0o755));
            fs::remove_dir_all(dir).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn h9_every_failure_over_openssh_has_the_kernels_own_code() {
    compare(super::openssh).await;
}

#[tokio::test]
async fn h9_denied_is_told_from_not_permitted() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    for (path, mode) in [
        (root.path(), 0o755),
        (&dir, 0o755),
        (&dir.join("closed"), 0o700),
        (&dir.join("sticky"), 0o1777),
    ] {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for file in ["file", "closed/file", "sticky/file"] {
        fs::write(dir.join(file), "x").unwrap();
        fs::set_permissions(dir.join(file), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let fs = super::openssh_unprivileged(&dir);
    let errno = |result: Result<(), FsError>| result.unwrap_err().code.errno();
    let path = |name: &str| dir.join(name);
    assert_eq!(
        errno(fs.open(&path("file"), READ, 0).await.map(drop)),
        Errno::ACCESS
    );
    assert_eq!(
        errno(fs.open(&path("closed/file"), READ, 0).await.map(drop)),
        Errno::ACCESS
    );
    assert_eq!(
        errno(fs.open(&path("new"), CREATE, 0o644).await.map(drop)),
        Errno::ACCESS
    );
    assert_eq!(
        errno(fs.stat(&path("closed/file"), Yes).await.map(drop)),
        Errno::ACCESS
    );
    assert_eq!(
        errno(fs.stat(&path("closed/absent/x"), Yes).await.map(drop)),
        Errno::ACCESS
    );
    assert_eq!(
        errno(fs.readdir(&path("closed")).await.map(drop)),
        Errno::ACCESS
    );
    assert_eq!(
        errno(fs.mkdir(&path("closed/new"), 0o755).await),
        Errno::ACCESS
    );
    assert_eq!(errno(fs.unlink(&path("file")).await), Errno::ACCESS);
    assert_eq!(errno(fs.unlink(&path("sticky/file")).await), Errno::PERM);
    assert_eq!(
        errno(fs.rename(&path("sticky/file"), &path("sticky/new")).await),
        Errno::PERM
    );
    assert_eq!(
        errno(fs.rename(&path("file"), &path("new")).await),
        Errno::ACCESS
    );
    assert_eq!(errno(fs.chmod(&path("file"), 0o777).await), Errno::PERM);
    assert_eq!(
        errno(fs.chmod(&path("closed/file"), 0o777).await),
        Errno::ACCESS
    );
    assert_eq!(errno(fs.chown(&path("file"), 0, 0, Yes).await), Errno::PERM);
    let then = std::time::UNIX_EPOCH;
    assert_eq!(
        errno(fs.utimes(&path("file"), then, then, Yes).await),
        Errno::PERM
    );
    let asked = Access {
        read: true,
        ..Access::default()
    };
    assert_eq!(errno(fs.access(&path("absent"), asked).await), Errno::NOENT);
    // A bare server cannot be asked for rights, and nobody guesses.
    assert_eq!(errno(fs.access(&path("file"), asked).await), Errno::NOSYS);
}

#[tokio::test]
async fn h9_a_full_and_a_fixed_file_system_are_told_apart() {
    let root = tempfile::tempdir().unwrap();
    let mount = "mkdir -p small fixed; mount -t tmpfs -o size=64k,nr_inodes=16 tmpfs small; mount -t tmpfs tmpfs fixed; \
                 touch fixed/file; mkdir fixed/dir; mount -o remount,ro fixed; exec /usr/lib/openssh/sftp-server";
    let fs = super::serve(&["unshare", "-rm", "sh", "-c", mount], root.path());
    let errno = |result: Result<(), FsError>| result.unwrap_err().code.errno();
    let path = |name: &str| root.path().join(name);
    let file = fs.open(&path("small/file"), CREATE, 0o644).await.unwrap();
    let filled = file.write_at(0, vec![7; 1 << 20].into()).await;
    let filled = filled.unwrap_err();
    assert_eq!(filled.to_string(), "ENOSPC: no space left on device, write");
    for (case, result) in [
        (
            "open",
            fs.open(&path("fixed/file"), WRITE, 0).await.map(drop),
        ),
        (
            "create",
            fs.open(&path("fixed/new"), CREATE, 0o644).await.map(drop),
        ),
        ("mkdir", fs.mkdir(&path("fixed/new"), 0o755).await),
        ("rmdir", fs.rmdir(&path("fixed/dir")).await),
        ("unlink", fs.unlink(&path("fixed/file")).await),
        (
            "rename",
            fs.rename(&path("fixed/file"), &path("fixed/new")).await,
        ),
        (
            "link",
            fs.link(&path("fixed/file"), &path("fixed/new")).await,
        ),
        (
            "symlink",
            fs.symlink(Path::new("x"), &path("fixed/new")).await,
        ),
        ("chmod", fs.chmod(&path("fixed/file"), 0o600).await),
    ] {
        assert_eq!(errno(result), Errno::ROFS, "{case}");
    }
}
