//! Our own server: exact by what it answers, not by looking afterwards.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use bulkhead_host::{Access, ChangeKind, Follow, OpenFlags, Provider, SftpProvider};
use bytes::Bytes;

/// The helper as a process of the test.
fn ours(dir: &Path) -> SftpProvider {
    let program = dir.join("../bulkhead-init");
    if !program.exists() {
        // Under another name first: several tests of one process never share the directory, but an open file cannot run.
        std::fs::write(&program, bulkhead_sandbox::helper_program()).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    super::serve(&[&program.display().to_string(), "files"], dir)
}

fn dir() -> (tempfile::TempDir, std::path::PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    (root, dir)
}

#[tokio::test]
async fn h9_every_failure_of_our_server_has_the_kernels_own_code() {
    let parent = tempfile::tempdir().unwrap();
    super::errors::compare(|dir| {
        let program = parent.path().join("bulkhead-init");
        std::fs::write(&program, bulkhead_sandbox::helper_program()).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        super::serve(&[&program.display().to_string(), "files"], dir)
    })
    .await;
}

#[tokio::test]
async fn h9_our_server_says_the_whole_of_stat() {
    let (_root, dir) = dir();
    let fs = ours(&dir);
    std::fs::write(dir.join("file"), vec![1; 10_000]).unwrap();
    std::fs::hard_link(dir.join("file"), dir.join("second")).unwrap();
    let then = UNIX_EPOCH + Duration::new(5, 123_456_789);
    let before = UNIX_EPOCH - Duration::new(5, 500_000_000);
    fs.utimes(Path::new("file"), then, before, Follow::Yes)
        .await
        .unwrap();
    let expected = std::fs::metadata(dir.join("file")).unwrap();
    let got = fs.stat(Path::new("file"), Follow::Yes).await.unwrap();
    assert_eq!(
        (got.inode, got.links, got.device, got.blocks, got.block_size),
        (
            expected.ino(),
            2,
            expected.dev(),
            expected.blocks(),
            expected.blksize()
        )
    );
    assert_eq!((got.accessed, got.modified), (then, before));
    assert_eq!(got.born, expected.created().ok());
    let read = OpenFlags {
        read: true,
        ..OpenFlags::default()
    };
    let file = fs.open(Path::new("file"), read, 0).await.unwrap();
    assert_eq!(file.stat().await.unwrap(), got);
    file.utimes(before, then).await.unwrap();
    assert_eq!(file.stat().await.unwrap().modified, then);
    assert_eq!(
        file.read_at(0, 20_000).await.unwrap(),
        Bytes::from(vec![1; 10_000])
    );
    let execute = Access {
        execute: true,
        ..Access::default()
    };
    let refused = fs.access(Path::new("file"), execute).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "EACCES: permission denied, access 'file'"
    );
}

#[tokio::test]
async fn h9_our_server_tells_changes_as_they_happen() {
    let (_root, dir) = dir();
    let fs = ours(&dir);
    let mut watcher = fs.watch(Path::new(".")).await.unwrap();
    let limit = Duration::from_secs(30);
    // A wait that is given up loses nothing.
    let nothing = tokio::time::timeout(Duration::from_millis(50), watcher.next()).await;
    assert!(nothing.is_err());
    std::fs::write(dir.join("new"), "x").unwrap();
    let mut seen = Vec::new();
    while !seen.contains(&(ChangeKind::Change, "new".into())) {
        let change = tokio::time::timeout(limit, watcher.next()).await.unwrap();
        let change = change.unwrap().unwrap();
        seen.push((change.kind, change.name));
    }
    assert_eq!(seen[0], (ChangeKind::Rename, "new".into()));
    // A file operation goes on while somebody waits for changes.
    drop(watcher);
    let mut watcher = fs.watch(Path::new("new")).await.unwrap();
    let (change, stat) = tokio::join!(tokio::time::timeout(limit, watcher.next()), async {
        let stat = fs.stat(Path::new("new"), Follow::Yes).await;
        std::fs::remove_file(dir.join("new")).unwrap();
        stat
    });
    assert_eq!(stat.unwrap().size, 1);
    assert_eq!(change.unwrap().unwrap().unwrap().name, "new");
}
