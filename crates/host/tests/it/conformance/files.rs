//! Files as streams, in bounded memory; watching; and the synchronous twins.

use std::{ffi::OsStr, path::Path, time::Duration};

use bulkhead_host::{
    BlockingFileSystem, ChangeKind, FileSystem, Flags, ReadStreamOptions, WriteOptions,
    WriteStreamOptions,
};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::io::AsyncReadExt as _;

use super::{Maker, Place, soon, streams};

const PIECE: usize = 1 << 20;
const MEMORY_BYTES: u64 = 64 << 20;

pub(crate) async fn section(maker: &impl Maker) {
    let place = Place::new(maker).await;
    there_and_back(&place).await;
    parts(&place).await;
    appended_and_inside(&place).await;
    failures(&place).await;
    if place.files.provider().capabilities().watch {
        watched(&place).await;
    }
    place.end().await;
}

fn piece(number: u64) -> Bytes {
    number.to_le_bytes().repeat(PIECE / 8).into()
}

/// 64 MiB, or what the environment says, written and read as streams.
async fn there_and_back(place: &Place) {
    let (path, pieces) = (place.path("large"), streams::size_bytes() / PIECE as u64);
    let before = streams::peak_bytes();
    let mut writes = place
        .files
        .create_write_stream(&path, WriteStreamOptions::default())
        .await
        .unwrap();
    for number in 0..pieces {
        writes.write(piece(number)).await.unwrap();
    }
    assert_eq!(writes.finish().await.unwrap(), pieces * PIECE as u64);
    let reads = place
        .files
        .create_read_stream(&path, ReadStreamOptions::default())
        .await
        .unwrap();
    let mut reads = reads.into_reader();
    let mut buffer = vec![0; PIECE];
    for number in 0..pieces {
        reads.read_exact(&mut buffer).await.unwrap();
        assert!(buffer == piece(number), "piece {number} is another");
    }
    assert_eq!(reads.read(&mut buffer).await.unwrap(), 0);
    let grown = streams::peak_bytes() - before;
    assert!(grown < MEMORY_BYTES, "{grown} bytes more were held");
    place.files.unlink(&path).await.unwrap();
}

/// From one byte to another, in pieces no longer than asked for.
async fn parts(place: &Place) {
    let path = place.path("letters");
    let text: String = ('a'..='z').collect();
    place
        .files
        .write_file(&path, text.repeat(1000), WriteOptions::WRITE)
        .await
        .unwrap();
    for (start, end, expected) in [
        (None, Some(2), "abc"),
        (Some(25_998), None, "yz"),
        (Some(1), Some(1), "b"),
        (Some(30_000), None, ""),
        (Some(25_999), Some(40_000), "z"),
    ] {
        let options = ReadStreamOptions {
            start,
            end,
            high_water_mark_bytes: 2,
        };
        let mut stream = place
            .files
            .create_read_stream(&path, options)
            .await
            .unwrap();
        let mut seen = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece.unwrap();
            assert!((1..=2).contains(&piece.len()));
            seen.extend_from_slice(&piece);
        }
        assert_eq!(String::from_utf8(seen).unwrap(), expected);
    }
}

async fn appended_and_inside(place: &Place) {
    let path = place.path("grown");
    let write = async |flags: Flags, start, text: &'static str| {
        let options = WriteStreamOptions {
            flags,
            start,
            ..WriteStreamOptions::default()
        };
        let mut stream = place
            .files
            .create_write_stream(&path, options)
            .await
            .unwrap();
        for letter in text.split_inclusive(|_: char| true) {
            stream
                .write(Bytes::from_static(letter.as_bytes()))
                .await
                .unwrap();
        }
        stream.finish().await.unwrap();
        String::from_utf8(place.files.read_file(&path).await.unwrap()).unwrap()
    };
    assert_eq!(write(Flags::WRITE, None, "one two").await, "one two");
    assert_eq!(write(Flags::APPEND, None, " three").await, "one two three");
    assert_eq!(
        write(Flags::READ_WRITE, Some(4), "TWO").await,
        "one TWO three"
    );
    assert_eq!(write(Flags::WRITE, None, "").await, "");
}

async fn failures(place: &Place) {
    let missing = place.path("missing");
    let error = place
        .files
        .create_read_stream(&missing, ReadStreamOptions::default())
        .await
        .unwrap_err();
    assert_eq!((error.name(), error.syscall), ("ENOENT", "open"));
    let read_only = WriteStreamOptions {
        flags: Flags::READ,
        ..WriteStreamOptions::default()
    };
    let path = place.path("letters");
    let mut stream = place
        .files
        .create_write_stream(&path, read_only)
        .await
        .unwrap();
    let failed = match stream.write(Bytes::from_static(b"x")).await {
        Ok(()) => stream.finish().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!((failed.name(), failed.syscall), ("EBADF", "write"));
}

async fn watched(place: &Place) {
    let dir = place.path("watched");
    place.files.mkdir(&dir, 0o755).await.unwrap();
    let mut watcher = place.files.watch(&dir).await.unwrap();
    let file = dir.join("a file");
    place
        .files
        .write_file(&file, "one", WriteOptions::WRITE)
        .await
        .unwrap();
    let mut next = async || soon("a change", watcher.next()).await.unwrap().unwrap();
    let first = next().await;
    assert_eq!(
        (first.kind, &*first.name),
        (ChangeKind::Rename, OsStr::new("a file"))
    );
    while next().await.kind != ChangeKind::Change {}
    place.files.unlink(&file).await.unwrap();
    while next().await.kind != ChangeKind::Rename {}
}

/// The synchronous twins: a connection of their own, made by the first call.
pub(crate) async fn blocking(maker: &impl Maker) {
    let place = Place::new(maker).await;
    let (describe, dir) = (maker.describe(), place.dir.clone());
    let before = maker.connections();
    let files = BlockingFileSystem::new(move || describe());
    assert_eq!(maker.connections(), before);
    let (files, dir) = tokio::task::spawn_blocking(move || {
        all_twins(&files, &dir);
        (files, dir)
    })
    .await
    .unwrap();
    if let (Some(before), Some(after)) = (before, maker.connections()) {
        assert_eq!(after, before + 1);
    }
    // Both see the same machine, where it is the same machine.
    let _ = FileSystem::exists(&place.files, &dir).await;
    tokio::task::spawn_blocking(move || {
        files.teardown();
        files.teardown();
        assert_eq!(files.stat(Path::new("/")).unwrap_err().name(), "EIO");
    })
    .await
    .unwrap();
    place.end().await;
}

fn all_twins(files: &BlockingFileSystem, dir: &Path) {
    let dir = dir.join("sync");
    files.mkdir_recursive(&dir.join("a/b"), 0o755).unwrap();
    let (file, other) = (dir.join("file"), dir.join("other"));
    files
        .write_file(&file, "text".into(), WriteOptions::WRITE)
        .unwrap();
    files.append_file(&file, " more".into()).unwrap();
    assert_eq!(files.read_file(&file).unwrap(), b"text more");
    files.truncate(&file, 4).unwrap();
    files.rename(&file, &other).unwrap();
    assert!(!files.exists(&file) && files.exists(&other));
    assert_eq!(files.stat(&other).unwrap().size, 4);
    assert_eq!(files.readdir(&dir).unwrap(), ["a", "other"]);
    let error = files.rmdir(&dir).unwrap_err();
    assert_eq!((error.name(), error.syscall), ("ENOTEMPTY", "rmdir"));
    let opened = files.open(&other, Flags::READ_WRITE, 0o644).unwrap();
    assert_eq!(opened.read(2, None).unwrap(), "te");
    assert_eq!(opened.write("XT".into(), None).unwrap(), 2);
    opened.close().unwrap();
    assert_eq!(files.read_file(&other).unwrap(), b"teXT");
    let times = (
        std::time::UNIX_EPOCH + Duration::from_secs(5),
        std::time::UNIX_EPOCH + Duration::from_secs(6),
    );
    files.utimes(&other, times.0, times.1).unwrap();
    assert_eq!(files.stat(&other).unwrap().modified, times.1);
    let all = bulkhead_host::RmOptions {
        recursive: true,
        ..Default::default()
    };
    files.rm(&dir, all).unwrap();
    assert!(!files.exists(&dir));
}
