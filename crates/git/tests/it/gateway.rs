//! Clone and push through the gateway with the real git client, and everything it must refuse (R6, R14).

use std::fs;

use bulkhead_git::inside;

use crate::support::{World, errors};

#[tokio::test(flavor = "multi_thread")]
async fn r14_a_phase_clones_commits_and_pushes_and_the_push_is_recorded_then_done() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    fs::write(dir.join("new.txt"), "work\n").unwrap();
    let output = world.finish(&dir, &world.order()).await;
    assert!(output.status.success(), "{}", errors(&output));
    let finish = inside::parse_finish(&output.stdout).unwrap();
    assert_eq!(finish.changed, inside::Changed::Pushed);
    assert_eq!(world.tip().await, finish.commit);
    let recorded = world.books.recorded.lock().unwrap().clone();
    assert_eq!(recorded.len(), 1);
    assert_eq!(
        (&recorded[0].old, &recorded[0].new),
        (&world.start, &finish.commit)
    );
    assert_eq!(*world.books.done.lock().unwrap(), recorded);
}
