//! What can be done to a holder's process.

use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_init::wire::Order;
use tokio::sync::watch;

use super::link::Link;
use crate::{ExitStatus, HostError, ProcessControl, Signal, Target, TerminalSize};

pub(super) struct Control {
    link: Arc<Link>,
    process: u32,
    exited: watch::Receiver<Option<ExitStatus>>,
}

impl Control {
    pub(super) const fn new(
        link: Arc<Link>,
        process: u32,
        exited: watch::Receiver<Option<ExitStatus>>,
    ) -> Self {
        Self {
            link,
            process,
            exited,
        }
    }
}

#[async_trait]
impl ProcessControl for Control {
    async fn wait(&self) -> ExitStatus {
        let mut exited = self.exited.clone();
        let status = exited.wait_for(Option::is_some).await;
        status
            .ok()
            .and_then(|status| *status)
            .unwrap_or(ExitStatus::HostEnded)
    }

    async fn signal(&self, signal: Signal, target: Target) -> Result<(), HostError> {
        send(&self.link, self.process, signal, target);
        Ok(())
    }

    async fn resize(&self, size: TerminalSize) -> Result<(), HostError> {
        self.link.order(&Order::Resize {
            process: self.process,
            rows: size.rows,
            columns: size.columns,
        });
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.link.order(&Order::Release {
            process: self.process,
        });
        self.link.table().release(self.process);
    }
}

pub(super) fn send(link: &Link, process: u32, signal: Signal, target: Target) {
    link.order(&Order::Signal {
        process,
        group: u8::from(target == Target::Group),
        signal: number(signal),
    });
}

/// Where a holder runs is Linux, and its numbers there are the same on every architecture that we have a helper for.
const fn number(signal: Signal) -> i32 {
    match signal {
        Signal::Hangup => 1,
        Signal::Interrupt => 2,
        Signal::Quit => 3,
        Signal::User1 => 10,
        Signal::User2 => 12,
        Signal::Terminate => 15,
        Signal::Stop => 19,
        Signal::Continue => 18,
        Signal::Kill => 9,
    }
}
