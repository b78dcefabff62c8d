//! The processes of one pool that stand ready, and those who wait for one.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use super::ZygoteId;
use crate::process::{Census, NoProcess, Process};

#[derive(Debug, Default)]
pub(super) struct Standby {
    line: Mutex<Line>,
    /// There is something for the keeper to do.
    pub(super) nudge: Notify,
}

#[derive(Debug, Default)]
struct Line {
    ready: VecDeque<(ZygoteId, Process)>,
    waiting: VecDeque<oneshot::Sender<Process>>,
    zygotes: u32,
    is_closed: bool,
}

/// What the keeper has to know to ask for more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub(super) ready: usize,
    pub(super) waiting: usize,
}

impl Standby {
    pub(super) async fn take(&self, wait_max: Duration) -> Result<Process, NoProcess> {
        let asked = {
            let mut line = self.line();
            if line.is_closed {
                return Err(NoProcess::Ending);
            }
            if let Some((_, process)) = line.ready.pop_front() {
                drop(line);
                self.nudge.notify_one();
                return Ok(process);
            }
            let (sender, asked) = oneshot::channel();
            line.waiting.push_back(sender);
            asked
        };
        self.nudge.notify_one();
        match timeout(wait_max, asked).await {
            Ok(Ok(process)) => Ok(process),
            Ok(Err(_)) => Err(NoProcess::Ending),
            Err(_) => Err(NoProcess::TooSlow),
        }
    }

    /// To whoever waits longest, or to those that stand ready.
    pub(super) fn put(&self, zygote: ZygoteId, process: Process) {
        let mut line = self.line();
        let mut process = process;
        while let Some(waiting) = line.waiting.pop_front() {
            match waiting.send(process) {
                Ok(()) => return,
                Err(unwanted) => process = unwanted,
            }
        }
        line.ready.push_back((zygote, process));
    }

    /// The zygote is dead, and so are its children.
    pub(super) fn forget(&self, zygote: ZygoteId) {
        self.line().ready.retain(|(of, _)| *of != zygote);
    }

    pub(super) fn need(&self) -> Need {
        let mut line = self.line();
        line.waiting.retain(|waiting| !waiting.is_closed());
        Need {
            ready: line.ready.len(),
            waiting: line.waiting.len(),
        }
    }

    pub(super) fn set_zygotes(&self, count: usize) {
        self.line().zygotes = u32::try_from(count).unwrap_or(u32::MAX);
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        let mut line = self.line();
        line.is_closed = true;
        line.zygotes = 0;
        let (ready, waiting) = (
            std::mem::take(&mut line.ready),
            std::mem::take(&mut line.waiting),
        );
        drop(line);
        drop((ready, waiting));
    }

    pub(super) fn census(&self) -> Census {
        let line = self.line();
        Census {
            standby: u32::try_from(line.ready.len()).unwrap_or(u32::MAX),
            zygotes: line.zygotes,
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
