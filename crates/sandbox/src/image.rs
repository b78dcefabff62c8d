//! Workspaces of a fixed size: an ext4 file system in a sparse file, on a loop device, mounted nowhere.
//!
//! Nothing of an image has a name: the file is unlinked from the start (`O_TMPFILE`), the loop device lets go of it with its
//! last user, and the mount is a detached one that only its descriptor holds. So when everybody who holds it is dead,
//! however they died, it is gone. What is kept on disk is an empty template of each size, which is copied (a few hundred
//! kilobytes, the rest is a hole) instead of running mkfs each time.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    fs::{SeekFrom, seek},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
        fsconfig_set_string, fsmount, fsopen,
    },
};

use crate::sys;

/// An image that no sandbox has used yet. Each is used once.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) mount: OwnedFd,
    pub(crate) size_bytes: u64,
}

/// Another process may take a free loop device between our asking and our using it.
const LOOP_ATTEMPTS: u32 = 64;
const BLOCK: u64 = 4096;

/// Makes one. Blocks: about 26 ms the first time for a size, a few after that.
pub(crate) fn make(dir: &Path, size_bytes: u64) -> io::Result<Image> {
    let size_bytes = size_bytes.next_multiple_of(BLOCK);
    let template = template(dir, size_bytes)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o600)
        .open(dir)?;
    copy_sparse(&template, &file, size_bytes)?;
    let mount = mount(&attach_loop(&file)?)?;
    Ok(Image { mount, size_bytes })
}

/// The empty file system of that size; made under another name first, so that nobody sees half of one.
fn template(dir: &Path, size_bytes: u64) -> io::Result<File> {
    let path = dir.join(format!("ext4-{size_bytes}"));
    if let Ok(file) = File::open(&path) {
        return Ok(file);
    }
    let draft = dir.join(format!("ext4-{size_bytes}.{}", uuid::Uuid::now_v7()));
    let made = File::create(&draft)
        .and_then(|file| file.set_len(size_bytes))
        .and_then(|()| make_file_system(&draft))
        .and_then(|()| fs::rename(&draft, &path));
    if let Err(error) = made {
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    File::open(path)
}

/// Without a journal: a workspace that crashed is thrown away, so nothing needs to be replayed. The file is a hole, so the
/// inode tables are zero already and no kernel thread needs to make them so.
fn make_file_system(path: &Path) -> io::Result<()> {
    let output = Command::new(mkfs())
        .args([
            "-q",
            "-F",
            "-m",
            "0",
            "-b",
            "4096",
            "-O",
            "^has_journal,^resize_inode",
        ])
        .args(["-E", "lazy_itable_init=1,nodiscard,root_owner=0:0"])
        .arg(path)
        .env_clear()
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("mkfs.ext4 failed: {words}")))
}

fn mkfs() -> PathBuf {
    let known = [
        "/usr/sbin/mkfs.ext4",
        "/sbin/mkfs.ext4",
        "/usr/bin/mkfs.ext4",
    ]
    .map(PathBuf::from);
    known
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("mkfs.ext4"))
}

fn copy_sparse(from: &File, to: &File, size_bytes: u64) -> io::Result<()> {
    to.set_len(size_bytes)?;
    let mut position = 0;
    loop {
        let start = match seek(from, SeekFrom::Data(position)) {
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            other => other?,
        };
        let end = seek(from, SeekFrom::Hole(start))?;
        let (mut read, mut written) = (start, start);
        while read < end {
            let length = usize::try_from(end - read).unwrap_or(usize::MAX);
            if rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), length)?
                == 0
            {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        position = end;
    }
}

struct LoopDevice {
    path: PathBuf,
    _held: File,
}

fn attach_loop(file: &File) -> io::Result<LoopDevice> {
    let control = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/loop-control")?;
    for _ in 0..LOOP_ATTEMPTS {
        let path = PathBuf::from(format!(
            "/dev/loop{}",
            sys::free_loop_device(control.as_fd())?
        ));
        let device = OpenOptions::new().read(true).write(true).open(&path)?;
        match sys::configure_loop_device(device.as_fd(), file.as_fd()) {
            Ok(()) => {
                return Ok(LoopDevice {
                    path,
                    _held: device,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "every free loop device was taken by somebody else",
    ))
}

/// Mounted, but nowhere. No barriers: what is lost with the machine's power is lost with the sandbox anyway.
fn mount(device: &LoopDevice) -> io::Result<OwnedFd> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", &device.path)?;
    fsconfig_set_flag(context.as_fd(), "nobarrier")?;
    fsconfig_set_flag(context.as_fd(), "noinit_itable")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}
