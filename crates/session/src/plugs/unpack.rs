//! Unpacking an archive that an agent's machine made, into an empty directory of the runner.
//!
//! The archive's names are not to be trusted: each is resolved by the kernel below the directory, without following
//! any link (`openat2`), so that nothing outside is written. Only files, directories and symbolic links are made;
//! owners, special permissions and devices are left out.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use bytes::{Buf as _, Bytes, BytesMut};
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat2, symlinkat};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    sync::mpsc,
};

/// What is read ahead of the disk.
const PIECE: usize = 64 << 10;
const PIECES: usize = 16;

/// Reads the archive to its end.
pub(super) async fn unpack(mut archive: impl AsyncRead + Unpin, into: &Path) -> io::Result<()> {
    let into = into.to_owned();
    let (sender, receiver) = mpsc::channel(PIECES);
    let mut pieces = Pieces {
        receiver,
        piece: Bytes::new(),
    };
    let work = tokio::task::spawn_blocking(move || {
        let root = File::open(&into)?.into();
        entries(&mut pieces, &root)?;
        // The maker of the archive may still be padding it.
        io::copy(&mut pieces, &mut io::sink()).map(drop)
    });
    let mut read = Ok(());
    loop {
        let mut piece = BytesMut::with_capacity(PIECE);
        match archive.read_buf(&mut piece).await {
            Ok(1..) => {
                if sender.send(Ok(piece.freeze())).await.is_err() {
                    break;
                }
            }
            Ok(0) => break,
            Err(error) => {
                read = Err(error);
                let cut = io::Error::from(io::ErrorKind::UnexpectedEof);
                drop(sender.send(Err(cut)).await);
                break;
            }
        }
    }
    drop(sender);
    let written = work.await.map_err(io::Error::other)?;
    read.and(written)
}

/// The archive's bytes for a thread that may block.
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

fn entries(archive: &mut impl Read, root: &OwnedFd) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Some((dir, name)) = checked(&path)? else {
            continue;
        };
        let dir = open_dir(root, &dir)?;
        let mode = Mode::from_raw_mode(entry.header().mode()? & 0o755 | 0o600);
        match entry.header().entry_type() {
            tar::EntryType::Directory => mkdirat(&dir, name, mode | Mode::RWXU)?,
            tar::EntryType::Symlink => {
                let Some(target) = entry.link_name()? else {
                    continue;
                };
                symlinkat(&*target, &dir, name)?;
            }
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let mut file = File::from(openat2(&dir, name, flags, mode, BELOW)?);
                io::copy(&mut entry, &mut file)?;
            }
            tar::EntryType::Link => link(root, &dir, name, &entry)?,
            _ => {}
        }
    }
    Ok(())
}

const BELOW: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// A second name of a file that came before becomes a copy of it.
fn link<R: Read>(
    root: &OwnedFd,
    dir: &OwnedFd,
    name: &Path,
    entry: &tar::Entry<'_, R>,
) -> io::Result<()> {
    let Some(target) = entry.link_name()? else {
        return Ok(());
    };
    let Some((from_dir, from)) = checked(&target)? else {
        return Ok(());
    };
    let from_dir = open_dir(root, &from_dir)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut source = File::from(openat2(&from_dir, from, flags, Mode::empty(), BELOW)?);
    let mode = Mode::from_raw_mode(entry.header().mode()? & 0o755 | 0o600);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut copy = File::from(openat2(dir, name, flags, mode, BELOW)?);
    io::copy(&mut source, &mut copy).map(drop)
}

fn open_dir(root: &OwnedFd, dir: &Path) -> io::Result<OwnedFd> {
    let path = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), BELOW)?)
}

/// The directory and the name; none for the archive's own root. A name that climbs is refused.
fn checked(path: &Path) -> io::Result<Option<(PathBuf, &Path)>> {
    let mut parts = path.components();
    if !parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        let words = format!("the archive holds the name {}", path.display());
        return Err(io::Error::other(words));
    }
    let plain = path.strip_prefix(".").unwrap_or(path);
    let (Some(dir), Some(name)) = (plain.parent(), plain.file_name()) else {
        return Ok(None);
    };
    Ok(Some((dir.to_owned(), Path::new(name))))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::io::Cursor;

    use super::*;

    fn header(kind: tar::EntryType, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o4777);
        header
    }

    fn archive(make: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Cursor<Vec<u8>> {
        let mut builder = tar::Builder::new(Vec::new());
        make(&mut builder);
        Cursor::new(builder.into_inner().unwrap())
    }

    /// The builder refuses such names itself, so they are written by hand.
    fn named(builder: &mut tar::Builder<Vec<u8>>, name: &[u8], data: &[u8]) {
        let mut header = header(tar::EntryType::Regular, data.len() as u64);
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }

    #[tokio::test]
    async fn r16_files_directories_and_links_arrive_without_special_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let made = archive(|builder| {
            let mut at = header(tar::EntryType::Directory, 0);
            builder.append_data(&mut at, "a", io::empty()).unwrap();
            let mut file = header(tar::EntryType::Regular, 2);
            builder.append_data(&mut file, "a/f", &b"hi"[..]).unwrap();
            let mut link = header(tar::EntryType::Symlink, 0);
            builder.append_link(&mut link, "l", "/etc/passwd").unwrap();
        });
        unpack(made, dir.path()).await.unwrap();
        assert_eq!(std::fs::read(dir.path().join("a/f")).unwrap(), b"hi");
        let target = std::fs::read_link(dir.path().join("l")).unwrap();
        assert_eq!(target, Path::new("/etc/passwd"));
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(dir.path().join("a/f"))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o7000, 0);
    }

    #[tokio::test]
    async fn r16_nothing_outside_the_directory_is_written() {
        for evil in ["../out", "/tmp/out-of-bulkhead-test", "a/../../out"] {
            let outer = tempfile::tempdir().unwrap();
            let dir = outer.path().join("in");
            std::fs::create_dir(&dir).unwrap();
            let made = archive(|builder| named(builder, evil.as_bytes(), b"x"));
            assert!(unpack(made, &dir).await.is_err(), "{evil}");
            assert!(!outer.path().join("out").exists());
        }
        // Through a link that the archive itself made.
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join("in");
        std::fs::create_dir(&dir).unwrap();
        let made = archive(|builder| {
            let mut link = header(tar::EntryType::Symlink, 0);
            builder.append_link(&mut link, "l", outer.path()).unwrap();
            named(builder, b"l/out", b"x");
        });
        assert!(unpack(made, &dir).await.is_err());
        assert!(!outer.path().join("out").exists());
    }
}
