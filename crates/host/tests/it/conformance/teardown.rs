//! H3: a teardown ends what was made, does nothing where nothing was, and leaves nothing behind.

use std::{path::Path, time::Duration};

use bulkhead_host::{Command, ExitStatus, FileSystem, HostError};

use super::{Ends, Maker, Place, ended, read_until, soon};

pub(crate) async fn section(maker: &impl Maker) {
    unused(maker).await;
    used(maker).await;
    if maker.ends() == Ends::Everything {
        strays(maker).await;
    }
}

async fn unused(maker: &impl Maker) {
    let before = maker.connections();
    let host = maker.describe()();
    host.teardown().await.unwrap();
    host.teardown().await.unwrap();
    assert!(!host.is_connected());
    assert_eq!(maker.connections(), before);
}

async fn used(maker: &impl Maker) {
    let host = maker.describe()();
    let mut process = host.spawn(super::piped("echo up; cat")).await.unwrap();
    read_until(process.stdout.as_mut().unwrap(), "up").await;
    let both = async { tokio::join!(host.teardown(), host.teardown()) };
    let (one, other) = soon("two teardowns at once", both).await;
    one.and(other).unwrap();
    soon("a third teardown", host.teardown()).await.unwrap();
    let status = ended(&process.control).await;
    let is_end = matches!(
        status,
        ExitStatus::Signal(1 | 9) | ExitStatus::HostEnded | ExitStatus::Code(137 | 255)
    );
    assert!(is_end, "{status}");
    let after = host.spawn(Command::new(["true"])).await;
    assert!(matches!(&after, Err(HostError::Gone { .. })), "{after:?}");
}

/// A process that left its session and its parents, twice removed, ignores every polite signal, and shows by a file that
/// it lives.
async fn strays(maker: &impl Maker) {
    let place = Place::new(maker).await;
    let beats = place.path("beats");
    let line = format!(
        "(setsid sh -c 'trap \"\" TERM HUP INT; while :; do echo beat >>\"$0\"; sleep 0.05; done' '{}' &); echo up; cat",
        beats.display()
    );
    let mut process = place.host.spawn(super::piped(&line)).await.unwrap();
    read_until(process.stdout.as_mut().unwrap(), "up").await;
    soon("the first beat", async {
        while size(&place.files, &beats).await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    soon("the teardown", place.host.teardown()).await.unwrap();
    // Whoever looks anew finds either another machine, or that the file grows no more.
    let again = Place::new(maker).await;
    let first = size(&again.files, &beats).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(
        size(&again.files, &beats).await,
        first,
        "a process outlived the teardown"
    );
    let all = bulkhead_host::RmOptions {
        recursive: true,
        force: true,
        ..Default::default()
    };
    again.files.rm(&place.dir, all).await.unwrap();
    again.end().await;
}

async fn size(files: &FileSystem, path: &Path) -> u64 {
    files.stat(path).await.map_or(0, |stat| stat.size)
}
