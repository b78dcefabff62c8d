//! H2: nothing happens before the first use, and first uses at the same time connect once.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use bulkhead_host::{Command, Endpoint, FileSystem};

use super::{Maker, run};

pub(crate) async fn section(maker: &impl Maker) {
    let before = maker.connections();
    let host = maker.describe()();
    assert!(!host.describe().is_empty());
    assert!(!host.isolation().is_empty());
    let files = FileSystem::new(host.files());
    assert!(!host.is_connected());
    assert_eq!(maker.connections(), before);

    // Fifty at once, of every kind.
    let root = maker.scratch();
    let uses = (0..50).map(|n| {
        let (host, files, root) = (Arc::clone(&host), files.clone(), root.clone());
        async move {
            match n % 3 {
                0 => assert!(run(&*host, Command::new(["true"])).await.status.success()),
                1 => assert!(files.stat(&root).await.unwrap().is_directory()),
                _ => {
                    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                    drop(host.listen(Endpoint::Tcp(any)).await.unwrap());
                }
            }
        }
    });
    super::soon("fifty first uses", futures::future::join_all(uses)).await;
    assert!(host.is_connected());
    if let (Some(before), Some(after)) = (before, maker.connections()) {
        assert_eq!(after, before + 1, "connections were made");
    }
    host.teardown().await.unwrap();
}
