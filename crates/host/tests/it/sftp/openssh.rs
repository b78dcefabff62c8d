//! What works, against OpenSSH's server.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use bulkhead_host::{FileKind, Follow, OpenFlags, Provider};
use bytes::Bytes;

const WRITE: OpenFlags = OpenFlags {
    read: true,
    write: true,
    append: false,
    create: true,
    exclusive: false,
    truncate: true,
};

fn name(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

#[tokio::test]
async fn h9_names_are_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let fs = super::openssh(dir.path());
    let names: [&[u8]; 6] = [
        b"\xff\xfe not utf-8",
        b"two\nlines",
        b"-rf",
        b"quo'te\"s`$x",
        b" spaces ",
        "Grüße \u{1f600}".as_bytes(),
    ];
    for bytes in names {
        let path = name(bytes);
        let file = fs.open(&path, WRITE, 0o644).await.unwrap();
        file.write_at(0, Bytes::copy_from_slice(bytes))
            .await
            .unwrap();
        file.close().await.unwrap();
        assert_eq!(std::fs::read(dir.path().join(&path)).unwrap(), bytes);
        let link = name(&[bytes, b".link"].concat());
        fs.symlink(&path, &link).await.unwrap();
        assert_eq!(fs.readlink(&link).await.unwrap(), path);
        let real = fs.realpath(&link).await.unwrap();
        assert_eq!(real, dir.path().canonicalize().unwrap().join(&path));
        fs.unlink(&link).await.unwrap();
    }
    let mut listed: Vec<_> = fs.readdir(Path::new(".")).await.unwrap();
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    let mut expected: Vec<_> = names
        .map(|bytes| OsStr::from_bytes(bytes).to_owned())
        .into();
    expected.sort();
    assert!(listed.iter().all(|entry| entry.kind == FileKind::File));
    let listed: Vec<_> = listed.into_iter().map(|entry| entry.name).collect();
    assert_eq!(listed, expected);
    for bytes in names {
        fs.rename(&name(bytes), Path::new("same")).await.unwrap();
    }
    assert_eq!(fs.readdir(Path::new(".")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn h9_what_is_set_is_what_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let fs = super::openssh(dir.path());
    let path = Path::new("file");
    let file = fs.open(path, WRITE, 0o640).await.unwrap();
    file.write_at(3, Bytes::from_static(b"abc")).await.unwrap();
    file.sync().await.unwrap();
    assert_eq!(file.stat().await.unwrap().size, 6);
    file.truncate(4).await.unwrap();
    file.chmod(0o600).await.unwrap();
    let (then, later) = (
        UNIX_EPOCH + Duration::from_secs(9),
        UNIX_EPOCH + Duration::from_secs(99),
    );
    assert_eq!(&file.read_at(0, 100).await.unwrap()[..], b"\0\0\0a");
    assert_eq!(file.read_at(4, 100).await.unwrap(), Bytes::new());
    file.utimes(then, later).await.unwrap();
    file.close().await.unwrap();
    let stat = fs.stat(path, Follow::Yes).await.unwrap();
    assert_eq!(
        (stat.kind, stat.permissions, stat.size),
        (FileKind::File, 0o600, 4)
    );
    assert_eq!((stat.accessed, stat.modified), (then, later));
    fs.chmod(path, 0o4755).await.unwrap();
    fs.utimes(path, later, then, Follow::Yes).await.unwrap();
    let stat = fs.stat(path, Follow::Yes).await.unwrap();
    assert_eq!(
        (stat.permissions, stat.accessed, stat.modified),
        (0o4755, later, then)
    );
    fs.link(path, Path::new("second")).await.unwrap();
    fs.mkdir(Path::new("dir"), 0o700).await.unwrap();
    assert_eq!(
        fs.stat(Path::new("dir"), Follow::No).await.unwrap().kind,
        FileKind::Directory
    );
    fs.rmdir(Path::new("dir")).await.unwrap();
    fs.symlink(path, Path::new("link")).await.unwrap();
    fs.utimes(Path::new("link"), then, then, Follow::No)
        .await
        .unwrap();
    let link = fs.stat(Path::new("link"), Follow::No).await.unwrap();
    assert_eq!((link.kind, link.modified), (FileKind::Symlink, then));
    assert_eq!(fs.stat(path, Follow::Yes).await.unwrap().modified, then);
    let append = OpenFlags {
        append: true,
        ..OpenFlags::default()
    };
    let file = fs.open(Path::new("second"), append, 0).await.unwrap();
    file.write_at(0, vec![b'+'; 700_000].into()).await.unwrap();
    assert_eq!(fs.stat(path, Follow::Yes).await.unwrap().size, 700_004);
}

#[tokio::test]
async fn h9_large_reads_and_writes_are_cut_and_pipelined_and_stay_exact() {
    let dir = tempfile::tempdir().unwrap();
    let fs = super::openssh(dir.path());
    let data: Bytes = (0..9_000_001_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0])
        .collect();
    let file = fs.open(Path::new("big"), WRITE, 0o644).await.unwrap();
    file.write_at(0, data.clone()).await.unwrap();
    assert!(std::fs::read(dir.path().join("big")).unwrap() == data);
    let (mut at, mut read) = (0, Vec::new());
    loop {
        let some = file.read_at(at, 3_000_000).await.unwrap();
        if some.is_empty() {
            break;
        }
        at += some.len() as u64;
        read.extend_from_slice(&some);
    }
    assert!(read == data);
}

#[tokio::test]
async fn h2_concurrent_first_operations_begin_one_conversation_and_many_run_at_once() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    let fs = Arc::new(super::openssh(dir.path()));
    let looks = (0..500).map(|_| {
        let fs = Arc::clone(&fs);
        async move {
            fs.stat(Path::new("file"), Follow::Yes)
                .await
                .map(|stat| stat.size)
        }
    });
    let sizes = futures::future::join_all(looks).await;
    assert!(sizes.iter().all(|size| size == &Ok(1)));
}

/// A caller that goes away in the middle leaves no open file on the server and disturbs no other operation.
#[tokio::test]
async fn cancelled_operations_leave_nothing_open() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    let fs = super::openssh(dir.path());
    let read = OpenFlags {
        read: true,
        ..OpenFlags::default()
    };
    // More than a server lets open at once, were they left open.
    for turn in 0..3000_u64 {
        let open = fs.open(Path::new("file"), read, 0);
        let patience = Duration::from_micros(turn % 150);
        let _ = tokio::time::timeout(patience, open).await;
    }
    let file = fs.open(Path::new("file"), read, 0).await.unwrap();
    assert_eq!(&file.read_at(0, 9).await.unwrap()[..], b"x");
    let server = fs_server(dir.path());
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let open = fs::read_dir(format!("/proc/{server}/fd")).unwrap().count();
        if open < 16 {
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{open} files are open"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The server whose working directory this is.
fn fs_server(dir: &Path) -> u32 {
    let dir = dir.canonicalize().unwrap();
    let processes = fs::read_dir("/proc").unwrap();
    let mut pids =
        processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == dir))
        .unwrap()
}

#[tokio::test]
async fn a_path_that_would_end_the_server_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let fs = super::openssh(dir.path());
    let error = fs.stat(Path::new("a\0b"), Follow::Yes).await.unwrap_err();
    assert_eq!(error.code.name(), "EINVAL");
    fs.stat(Path::new("."), Follow::Yes).await.unwrap();
}

#[tokio::test]
async fn what_is_no_file_server_is_said_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let fs = super::serve(
        &[
            "sh",
            "-c",
            "echo Welcome to this machine, friend; exec sleep 5",
        ],
        dir.path(),
    );
    let error = fs.stat(Path::new("."), Follow::Yes).await.unwrap_err();
    assert!(error.to_string().contains("start-up file"), "{error}");
    let fs = super::serve(&["true"], dir.path());
    let error = fs.stat(Path::new("."), Follow::Yes).await.unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
}
