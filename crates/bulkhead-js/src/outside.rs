//! The session's runtime, as a plug's thread uses it.
//!
//! Whatever a plug asks for runs there: a connection that a host makes belongs to the runtime that made it, and would
//! stand still whenever the plug's own thread does. For the same reason the synchronous methods need no connection of
//! their own: while the plug's thread waits, the session's runtime goes on serving the one there is.

use std::{sync::mpsc, time::Duration};

use bulkhead_engine::{Thrown, Value};
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How often a waiting thread looks whether the plug has been told to end.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) type Outcome = Result<Value, Thrown>;

#[derive(Clone)]
pub(crate) struct Outside {
    runtime: Handle,
    tasks: TaskTracker,
    /// Cancelled when the plug is done with, whatever it has under way.
    ended: CancellationToken,
}

impl Outside {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Starts work on the runtime; the future is of its outcome.
    pub(crate) fn begin(
        &self,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> BoxFuture<'static, Outcome> {
        let ended = self.ended.clone();
        let work = async move { ended.run_until_cancelled_owned(work).await };
        let task = self.tasks.spawn_on(work, &self.runtime);
        Box::pin(async move {
            match task.await {
                Ok(Some(outcome)) => outcome,
                Ok(None) | Err(_) => Err(over()),
            }
        })
    }

    /// Does work on the runtime while this thread waits.
    pub(crate) fn wait(&self, work: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
        let (done, outcome) = mpsc::sync_channel(1);
        let ended = self.ended.clone();
        let work = async move {
            if let Some(outcome) = ended.run_until_cancelled_owned(work).await {
                // Nobody waits any more where the plug has been told to end.
                let _ = done.send(outcome);
            }
        };
        self.tasks.spawn_on(work, &self.runtime);
        loop {
            match outcome.recv_timeout(LOOK) {
                Ok(outcome) => return outcome,
                Err(mpsc::RecvTimeoutError::Timeout) if !self.ended.is_cancelled() => {}
                Err(_) => return Err(over()),
            }
        }
    }

    /// Work that nothing in the plug waits for.
    pub(crate) fn aside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        let work = async move {
            ended.run_until_cancelled_owned(work).await;
        };
        self.tasks.spawn_on(work, &self.runtime);
    }

    /// Ends whatever is under way.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        self.tasks.close();
    }
}

fn over() -> Thrown {
    Thrown::new("the plug has ended")
}
