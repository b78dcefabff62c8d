//! A host with the one before it, torn down in that order, as a session does (H4).

use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_host::{
    Command, DuplexStream, Endpoint, Host, HostError, Layer, Listener, Process, Provider,
};

#[derive(Debug)]
pub(crate) struct Nested {
    outer: Arc<dyn Host>,
    inner: Box<dyn Host>,
}

impl Nested {
    pub(crate) fn new(outer: Arc<dyn Host>, inner: impl Host + 'static) -> Self {
        let inner = Box::new(inner);
        Self { outer, inner }
    }
}

#[async_trait]
impl Host for Nested {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn is_connected(&self) -> bool {
        self.inner.is_connected() || self.outer.is_connected()
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        self.inner.spawn(command).await
    }

    fn files(&self) -> Arc<dyn Provider> {
        self.inner.files()
    }

    async fn connect(&self, to: Endpoint) -> Result<DuplexStream, HostError> {
        self.inner.connect(to).await
    }

    async fn listen(&self, at: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        self.inner.listen(at).await
    }

    fn isolation(&self) -> Vec<Layer> {
        self.inner.isolation()
    }

    async fn teardown(&self) -> Result<(), HostError> {
        let inner = self.inner.teardown().await;
        let outer = self.outer.teardown().await;
        inner.and(outer)
    }
}
