//! Prepared systems, kept between processes: a session process lives for one phase only, and copying the same few hundred
//! files for each would take longer than making the sandbox.
//!
//! ```text
//! RUN_DIR/systems/KEY/{lock, etc/, root-POINTS/}
//! ```
//!
//! KEY is a digest of all that a system is made from: what the host's files were when they were looked at (inode, size,
//! times), the operator's authority, this program's version, and the machine's boot, so that what a crash may have left half
//! on the disk is never used. A system is made under another name and renamed, so nobody sees half of one; it is not
//! changed afterwards, except that roots are added in the same way. Its users hold its lock shared; whoever removes it needs the lock
//! alone. The directories belong to the engine's own user and are closed to everybody else, which is verified at each opening.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs::{self, File},
    io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{
    cgroup::Owner,
    create::private_dir,
    system::{self, MountPoint},
};

/// Where they are, below the run directory.
pub(crate) const SYSTEMS: &str = "systems";
const LOCK: &str = "lock";
const DRAFT: &str = "draft";
/// Changed whenever what is written changes while the version does not.
const FORMAT: u32 = 1;
/// Others may remove a system between our finding and our holding it.
const ATTEMPTS: u32 = 16;
/// A system with more roots than these is made anew when nobody uses it.
const MOST_ROOTS: usize = 256;
/// Of systems that nobody uses, so many newest ones are kept for whoever comes next.
const KEPT_UNUSED: usize = 4;

/// A prepared system, held as long as this lives.
#[derive(Debug)]
pub(crate) struct System {
    dir: PathBuf,
    owner: Owner,
    /// Directories that are bound beside `/usr`.
    pub(crate) real_dirs: Vec<&'static str>,
    _lock: File,
}

impl System {
    /// Finds the system in `systems` that fits the host as it is now, or makes it.
    pub(crate) fn open(
        systems: &Path,
        owner: Owner,
        extra_ca_pem: Option<&[u8]>,
    ) -> io::Result<Self> {
        private_dir(systems)?;
        let dir = systems.join(key(extra_ca_pem)?);
        if has_too_many_roots(&dir) {
            retire(&dir, owner)?;
        }
        for _ in 0..ATTEMPTS {
            if let Some(lock) = hold(&dir)? {
                return Ok(Self {
                    dir,
                    owner,
                    real_dirs: system::real_dirs(),
                    _lock: lock,
                });
            }
            settle(&dir, owner, |draft| {
                private_dir(draft)?;
                File::create(draft.join(LOCK))?;
                system::make_etc(&draft.join("etc"), extra_ca_pem)
            })?;
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    pub(crate) fn etc(&self) -> PathBuf {
        self.dir.join("etc")
    }

    /// A root directory with these mount points besides the usual ones.
    pub(crate) fn root(&self, more: &[MountPoint]) -> io::Result<PathBuf> {
        let mut digest = Sha256::new();
        for point in more {
            let (kind, path) = match point {
                MountPoint::Dir(path) => (b'd', path),
                MountPoint::File(path) => (b'f', path),
            };
            digest.update([kind]);
            text(&mut digest, path.as_os_str());
        }
        let path = self.dir.join(format!("root-{}", hex(digest)));
        if !path.exists() {
            settle(&path, self.owner, |draft| {
                system::make_root_with(draft, more)
            })?;
        }
        Ok(path)
    }
}

/// Makes a directory under a name of its own and gives it its place, unless somebody was faster.
fn settle(
    place: &Path,
    owner: Owner,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let draft = draft(place, owner);
    let made = make(&draft).and_then(|()| match fs::rename(&draft, place) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            fs::remove_dir_all(&draft)
        }
        other => other,
    });
    if made.is_err() {
        let _ = fs::remove_dir_all(&draft);
    }
    made
}

/// A name that tells whose it is, beside `place`.
fn draft(place: &Path, owner: Owner) -> PathBuf {
    place.with_file_name(format!("{DRAFT}-{}.{owner}", Uuid::now_v7()))
}

/// Takes the lock of a system that is there. None where it is not, or not any more.
fn hold(dir: &Path) -> io::Result<Option<File>> {
    let path = dir.join(LOCK);
    let lock = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    private_dir(dir)?;
    flock(&lock, FlockOperation::LockShared)?;
    let (held, there) = (lock.metadata()?, fs::metadata(&path));
    let is_same = there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino()));
    Ok(is_same.then_some(lock))
}

/// Removes a system, unless somebody uses it.
fn retire(dir: &Path, owner: Owner) -> io::Result<()> {
    let Ok(lock) = File::open(dir.join(LOCK)) else {
        return Ok(());
    };
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    let draft = draft(dir, owner);
    match fs::rename(dir, &draft) {
        // Somebody else was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    drop(lock);
    fs::remove_dir_all(draft)
}

fn has_too_many_roots(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|entries| entries.count() > MOST_ROOTS)
}

/// Removes old systems that nobody uses, and drafts of the dead. What is removed was prepared, never a sandbox's data.
pub(crate) fn tidy(systems: &Path, owner: Owner) -> Vec<(PathBuf, io::Result<()>)> {
    let entries = fs::read_dir(systems).into_iter().flatten().flatten();
    let (drafts, mut others): (Vec<_>, Vec<_>) = entries
        .map(|entry| entry.path())
        .partition(|path| is_draft(path));
    let inner = others
        .iter()
        .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    let inner: Vec<_> = inner
        .map(|entry| entry.path())
        .filter(|path| is_draft(path))
        .collect();
    others.sort_by_key(|dir| {
        fs::metadata(dir.join(LOCK))
            .and_then(|lock| lock.modified())
            .ok()
    });
    let old = others.len().saturating_sub(KEPT_UNUSED);
    for dir in others.iter().take(old) {
        if let Err(error) = retire(dir, owner) {
            tracing::debug!(%error, dir = %dir.display(), "removing a prepared system that nobody uses");
        }
    }
    let dead = drafts
        .into_iter()
        .chain(inner)
        .filter(|path| of_the_dead(path));
    dead.map(|path| {
        let removed = fs::remove_dir_all(&path);
        (path, removed)
    })
    .collect()
}

fn is_draft(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_bytes().starts_with(DRAFT.as_bytes())
}

fn of_the_dead(draft: &Path) -> bool {
    let name = draft.file_name().and_then(OsStr::to_str);
    let owner = name.and_then(|name| name.split_once('.'));
    owner
        .and_then(|(_, owner)| owner.parse::<Owner>().ok())
        .is_some_and(|owner| owner.is_dead())
}

/// The digest of everything that a system is made from.
fn key(extra_ca_pem: Option<&[u8]>) -> io::Result<String> {
    let mut digest = Sha256::new();
    digest.update(FORMAT.to_le_bytes());
    text(&mut digest, env!("CARGO_PKG_VERSION").as_ref());
    digest.update(fs::read("/proc/sys/kernel/random/boot_id")?);
    let extra = extra_ca_pem.unwrap_or_default();
    digest.update(extra.len().to_le_bytes());
    digest.update(extra);
    for path in system::sources() {
        text(&mut digest, path.as_os_str());
        let Ok(found) = fs::symlink_metadata(&path) else {
            continue;
        };
        let numbers = [
            found.dev(),
            found.ino(),
            found.len(),
            u64::from(found.mode()),
        ];
        let times = [
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ];
        numbers
            .iter()
            .for_each(|number| digest.update(number.to_le_bytes()));
        times
            .iter()
            .for_each(|number| digest.update(number.to_le_bytes()));
    }
    Ok(hex(digest))
}

fn text(digest: &mut Sha256, text: &OsStr) {
    digest.update(text.len().to_le_bytes());
    digest.update(text.as_bytes());
}

fn hex(digest: Sha256) -> String {
    let mut text = String::new();
    for byte in digest.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn systems() -> (tempfile::TempDir, PathBuf, Owner) {
        let dir = tempfile::tempdir().unwrap();
        let systems = dir.path().join(SYSTEMS);
        (dir, systems, Owner::this().unwrap())
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }

    /// A second engine finds what the first one made, and another authority makes another system.
    #[test]
    fn a_system_is_made_once_for_what_it_is_made_from() {
        let (_dir, systems, owner) = systems();
        let one = System::open(&systems, owner, None).unwrap();
        let made = fs::metadata(one.etc()).unwrap().ino();
        drop(one);
        let again = System::open(&systems, owner, None).unwrap();
        assert_eq!(fs::metadata(again.etc()).unwrap().ino(), made);
        let other = System::open(&systems, owner, Some(b"AUTHORITY")).unwrap();
        assert_ne!(other.dir, again.dir);
        let bundle = fs::read(other.etc().join("ssl/certs/ca-certificates.crt")).unwrap();
        assert!(bundle.ends_with(b"AUTHORITY"));
        let points = [MountPoint::Dir("/opt/tool".into())];
        let root = other.root(&points).unwrap();
        assert!(root.join("opt/tool").is_dir());
        assert_eq!(root, other.root(&points).unwrap());
        assert_ne!(root, other.root(&[]).unwrap());
        assert_eq!(names(&systems).len(), 2, "no draft is left");
    }

    /// Whoever races to make the same system gets the same one, whole.
    #[test]
    fn many_at_once_get_one_system() {
        let (_dir, systems, owner) = systems();
        let dirs: Vec<_> = std::thread::scope(|scope| {
            let open = || System::open(&systems, owner, None).unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap().etc())
                .collect()
        });
        assert!(
            dirs.iter()
                .all(|etc| etc == &dirs[0] && etc.join("passwd").exists())
        );
        assert_eq!(names(&systems).len(), 1);
    }

    /// Old systems go when nobody uses them; one in use, and drafts of the living, stay.
    #[test]
    fn unused_systems_go_and_used_ones_stay() {
        let (_dir, systems, owner) = systems();
        let held = System::open(&systems, owner, None).unwrap();
        for number in 0_u8..6 {
            drop(System::open(&systems, owner, Some(&[number])).unwrap());
        }
        let living = draft(&systems.join("x"), owner);
        fs::create_dir(&living).unwrap();
        let dead = living.with_extension(owner.to_string().replacen('-', "1-", 1));
        fs::create_dir(&dead).unwrap();
        let removed: Vec<_> = tidy(&systems, owner)
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert_eq!(removed, [dead]);
        assert!(held.etc().join("passwd").exists());
        assert!(living.exists());
        assert_eq!(names(&systems).len(), KEPT_UNUSED + 2);
    }

    /// A directory that others can write, or that is somebody else's, is not used.
    #[test]
    fn somebody_else_s_directory_is_refused() {
        let (_dir, systems, owner) = systems();
        let system = System::open(&systems, owner, None).unwrap();
        let dir = system.dir.clone();
        drop(system);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            System::open(&systems, owner, None).is_err(),
            "others could have written there"
        );
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&dir, Some(1), None).unwrap();
            assert!(
                System::open(&systems, owner, None).is_err(),
                "it is somebody else's"
            );
        }
    }
}
