//! Following what happens: a reader that goes on from a sequence number, woken by every commit.
//!
//! Each follower has a task that reads what is new, hands it on through a bounded channel, and sleeps until
//! the store says that something was committed. A slow client slows its own task down and nobody else.

use std::{future::Future, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::{Problem, plane::Plane};

/// How much a follower may be ahead of its client.
const AHEAD: usize = 64;

pub(crate) enum Item<T> {
    New(T),
    /// Nothing more can come.
    End,
    /// The server is going away: come back and go on.
    Bye,
    Failed(Problem),
}

pub(crate) type Live<T> = BoxStream<'static, Item<T>>;

/// What was read in one go.
pub(crate) struct Batch<T> {
    pub(crate) items: Vec<T>,
    /// From where to go on.
    pub(crate) after: u64,
    /// Nothing can come after these.
    pub(crate) is_over: bool,
}

/// How often a follower looks by itself where every change is a commit.
pub(crate) const SELDOM: Duration = Duration::from_secs(10);
/// The same where output is read, which is no commit.
pub(crate) const OFTEN: Duration = Duration::from_millis(200);

/// Reads by `read`, beginning after `after`, until it is over. `read` must look whether it is over before it
/// reads, so that nothing which comes in between is missed.
pub(crate) fn follow<T, F>(
    plane: &Arc<Plane>,
    mut after: u64,
    look: Duration,
    read: impl Fn(Arc<Plane>, u64) -> F + Send + 'static,
) -> Live<T>
where
    T: Send + 'static,
    F: Future<Output = Result<Batch<T>, Problem>> + Send,
{
    let (sender, receiver) = mpsc::channel(AHEAD);
    let owner = Arc::clone(plane);
    plane.tasks.spawn(async move {
        let mut changes = owner.store.changes();
        loop {
            changes.borrow_and_update();
            let batch = match read(Arc::clone(&owner), after).await {
                Ok(batch) => batch,
                Err(problem) => {
                    drop(sender.send(Item::Failed(problem)).await);
                    return;
                }
            };
            let was_empty = batch.items.is_empty();
            after = batch.after;
            for item in batch.items {
                if sender.send(Item::New(item)).await.is_err() {
                    return;
                }
            }
            if !was_empty {
                continue;
            }
            if batch.is_over {
                drop(sender.send(Item::End).await);
                return;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(look) => {}
                () = sender.closed() => return,
                () = owner.closing.cancelled() => {
                    drop(sender.send(Item::Bye).await);
                    return;
                }
            }
        }
    });
    ReceiverStream::new(receiver).boxed()
}
