//! What one invocation can ask of the platform while it runs.

use std::time::Duration;

use async_trait::async_trait;
use bulkhead_wire::platform;

/// The way to the platform, for one invocation: the stream of its `Invoke`, or a fake in tests.
#[async_trait]
pub trait PlatformLink: Send + Sync + 'static {
    /// Sends a typed call with the invocation's token, and waits for its answer. Where the platform is gone, or its
    /// answer is empty or none to this call, that is an error in the answer.
    async fn ask(&self, call: platform::call::Call) -> platform::answer::Answer;

    /// Asks whether one request of `host.fetch`, or one hop of it, may be made now. Fails closed: no answer is a no.
    async fn permit(&self) -> Result<(), NoPermit>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPermit {
    #[error("the installation made its 60 requests of this minute")]
    UsedUp { retry_after: Duration },
    #[error("the platform did not answer whether a request may be made")]
    NoAnswer,
}
