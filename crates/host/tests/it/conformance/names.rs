//! Names are bytes: not UTF-8, spaces, newlines, leading dashes, quotes; and many of them.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use bulkhead_host::{CopyOptions, FileKind, FileSystem, Replace, RmOptions, WriteOptions};
use futures::{StreamExt as _, TryStreamExt as _};

use super::{Maker, Place, run};

const AWKWARD: [&[u8]; 18] = [
    b"plain",
    b"with space",
    b" leading and trailing ",
    b"new\nline",
    b"-rf",
    b"--",
    b"'quote'",
    b"\"double\"",
    b"back\\slash",
    b"$HOME",
    b"`id`",
    b"*",
    b"tab\there",
    b"\x01\x7f",
    "gr\u{fc}n \u{1f332}".as_bytes(),
    b"\xff\xfe not UTF-8 \x80",
    b"...",
    b"{a,b}~#%&",
];
const MANY: usize = 10_000;
const AT_ONCE: usize = 32;

pub(crate) async fn section(maker: &impl Maker) {
    let place = Place::new(maker).await;
    for name in AWKWARD {
        each_operation(&place, OsStr::from_bytes(name)).await;
    }
    listed(&place).await;
    as_programs_see_them(&place).await;
    place.end().await;
}

/// Every operation that takes a name, with this one.
async fn each_operation(place: &Place, name: &OsStr) {
    let files = &place.files;
    let dir = place.path(name);
    files.mkdir(&dir, 0o755).await.unwrap();
    let (file, moved, linked, copied) = (
        dir.join(name),
        dir.join("moved"),
        dir.join("hard"),
        dir.join("copy"),
    );
    files
        .write_file(&file, name.as_bytes().to_vec(), WriteOptions::WRITE)
        .await
        .unwrap();
    assert_eq!(files.read_file(&file).await.unwrap(), name.as_bytes());
    assert_eq!(files.readdir(&dir).await.unwrap(), [name]);
    let link = dir.join("link");
    files.symlink(Path::new(name), &link).await.unwrap();
    assert_eq!(files.readlink(&link).await.unwrap(), Path::new(name));
    assert_eq!(
        files.realpath(&link).await.unwrap(),
        files.realpath(&file).await.unwrap()
    );
    files.copy_file(&file, &copied, Replace::No).await.unwrap();
    files.rename(&file, &moved).await.unwrap();
    files.rename(&moved, &file).await.unwrap();
    files.link(&file, &linked).await.unwrap();
    assert_eq!(files.stat(&linked).await.unwrap().size, name.len() as u64);
    let tree = place.path("copied tree");
    let recursive = CopyOptions {
        recursive: true,
        ..CopyOptions::default()
    };
    files.cp(&dir, &tree, recursive).await.unwrap();
    assert_eq!(
        files.read_file(&tree.join(name)).await.unwrap(),
        name.as_bytes()
    );
    let all = RmOptions {
        recursive: true,
        ..RmOptions::default()
    };
    files.rm(&tree, all).await.unwrap();
    let made = files.mkdtemp(&dir.join(name)).await.unwrap();
    assert!(
        made.as_os_str()
            .as_bytes()
            .starts_with(dir.join(name).as_os_str().as_bytes())
    );
    files.rmdir(&made).await.unwrap();
    files.unlink(&file).await.unwrap();
    let error = files.stat(&file).await.unwrap_err();
    assert_eq!((error.name(), error.path), ("ENOENT", Some(file)));
}

async fn listed(place: &Place) {
    let names: BTreeSet<OsString> = AWKWARD
        .iter()
        .map(|name| OsStr::from_bytes(name).to_owned())
        .collect();
    let seen = place.files.readdir(&place.dir).await.unwrap();
    assert_eq!(seen, names.iter().cloned().collect::<Vec<_>>());
    let kinds = place.files.readdir_with_types(&place.dir).await.unwrap();
    assert!(kinds.iter().all(|entry| entry.kind == FileKind::Directory));
    let below = place.files.readdir_recursive(&place.dir).await.unwrap();
    for name in &names {
        assert!(
            below.contains(&Path::new(name).join("link")),
            "{}",
            name.display()
        );
    }
}

/// What the file system makes is what a program on the host finds.
async fn as_programs_see_them(place: &Place) {
    let command = bulkhead_host::Command::shell("for f in * ...; do printf '%s\\0' \"$f\"; done")
        .cwd(place.dir.to_str().unwrap());
    let ran = run(&*place.host, command).await;
    let seen: BTreeSet<&[u8]> = ran
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(seen, AWKWARD.into_iter().collect());
}

/// 10,000 files: made, listed, read and removed, with many operations under way.
pub(crate) async fn many(maker: &impl Maker) {
    let place = Place::new(maker).await;
    let dir = place.path("many");
    place.files.mkdir(&dir, 0o755).await.unwrap();
    let path = |n: usize| dir.join(format!("file {n}"));
    each(
        &place.files,
        (0..MANY).map(|n| (n, path(n))),
        async |files, (n, path)| {
            files
                .write_file(&path, n.to_string(), WriteOptions::WRITE)
                .await
        },
    )
    .await;
    assert_eq!(place.files.readdir(&dir).await.unwrap().len(), MANY);
    each(
        &place.files,
        (0..MANY).map(|n| (n, path(n))),
        async |files, (n, path)| {
            assert_eq!(files.read_file(&path).await?, n.to_string().into_bytes());
            Ok(())
        },
    )
    .await;
    let all = RmOptions {
        recursive: true,
        ..RmOptions::default()
    };
    place.files.rm(&dir, all).await.unwrap();
    assert!(!place.files.exists(&dir).await);
    place.end().await;
}

type Item = (usize, PathBuf);

async fn each(
    files: &FileSystem,
    items: impl Iterator<Item = Item>,
    work: impl AsyncFn(&FileSystem, Item) -> Result<(), bulkhead_host::FsError>,
) {
    let done = futures::stream::iter(items).map(|item| work(files, item));
    done.buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
        .unwrap();
}
