//! Processes on this machine itself, behind no wall at all, but none of them left behind.
//!
//! ```text
//! Keeper::start ──▶ Keeper ──spawn──▶ Process
//!                     └ end, drop, or our own death ──▶ the program `keeper` kills all that descends from it, and exits
//! ```
//!
//! A phase never runs in this: it is for sessions that a person starts on their own machine, on the host `local`.

use std::{io, os::fd::OwnedFd, path::PathBuf, process::Stdio, time::Duration};

use bulkhead_init::wire::{Event, Request};
use rustix::fs::{AtFlags, Mode, OFlags};
use tokio::{
    process::Child,
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use tokio_util::task::TaskTracker;

use crate::{
    driver::Ask, error::SpawnError, link::Link, process::Process, processes::Processes, program,
    sandbox::describe, spec::ProcessSpec,
};

/// Requests that wait while the keeper starts a process.
const QUEUE: usize = 64;
const START_LIMIT: Duration = Duration::from_secs(30);
/// The keeper itself gives up after a shorter time.
const END_LIMIT: Duration = Duration::from_secs(15);

/// A running keeper. Dropping it ends its processes in the background.
#[derive(Debug)]
pub struct Keeper {
    asks: mpsc::Sender<Ask>,
    ends: mpsc::Sender<()>,
    ended: watch::Receiver<bool>,
    holds_by: Holds,
}

/// What the keeper can end its processes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// A control group, which is killed at once as a whole.
    Group,
    /// The tree of processes, whose orphans the keeper adopts.
    Tree,
}

impl Keeper {
    pub async fn start() -> io::Result<Self> {
        let file = program::in_memory()?;
        let (link, end) = Link::pair()?;
        let child = program::command(&file)
            .arg("keeper")
            .stdin(Stdio::from(end))
            .spawn()?;
        let ready = timeout(START_LIMIT, link.receive::<Event>()).await;
        let Ok(Some((Event::Ready {}, files))) = ready.map_err(|_| io::ErrorKind::TimedOut)? else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let group = files.into_iter().next();
        let holds_by = if group.is_some() {
            Holds::Group
        } else {
            Holds::Tree
        };
        let (asks, asked) = mpsc::channel(QUEUE);
        let (ends, to_end) = mpsc::channel(1);
        let (tells, ended) = watch::channel(false);
        let driver = Driver {
            link,
            child,
            group,
            asked,
            to_end,
            processes: Processes::default(),
        };
        TaskTracker::new().spawn(async move {
            driver.run().await;
            tells.send_replace(true);
        });
        Ok(Self {
            asks,
            ends,
            ended,
            holds_by,
        })
    }

    pub const fn holds_by(&self) -> Holds {
        self.holds_by
    }

    /// Starts a process with this user's rights. It leads a session of its own.
    pub async fn spawn(&self, spec: ProcessSpec) -> Result<Process, SpawnError> {
        let (answer, answered) = oneshot::channel();
        let (start, outer) = describe(spec, answer)?;
        let asked = self.asks.send(Ask::Spawn(Box::new(start))).await;
        asked.map_err(|_| SpawnError::SandboxEnded)?;
        let started = answered.await.map_err(|_| SpawnError::SandboxEnded)??;
        Process::new(started, outer, self.asks.downgrade()).map_err(SpawnError::Io)
    }

    /// Kills everything that descends from what was started, and waits until it is gone. Legal in every state.
    pub async fn end(&self) {
        // There is room for one: it is ending already.
        let _ = self.ends.try_send(());
        let mut ended = self.ended.clone();
        // An error means that the runtime is going down, and the keeper has seen its end of file.
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

/// The one task that speaks with the keeper.
struct Driver {
    link: Link,
    child: Child,
    /// For the case that the keeper is killed.
    group: Option<OwnedFd>,
    asked: mpsc::Receiver<Ask>,
    to_end: mpsc::Receiver<()>,
    processes: Processes,
}

impl Driver {
    async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                event = self.link.receive::<Event>() => match event {
                    Ok(Some((event, files))) => self.processes.event(event, files),
                    Ok(None) | Err(_) => break,
                },
                _ = self.to_end.recv() => break,
                () = self.processes.deliver(&self.link), if self.processes.has_letters() => {}
                ask = self.asked.recv(), if self.processes.has_room() => match ask {
                    Some(Ask::Spawn(start)) => self.processes.spawn(*start),
                    Some(Ask::Signal { token, target, signal }) => {
                        self.processes.signal(token, target, signal);
                    }
                    Some(Ask::Clear) => self.processes.clear(),
                    // Without walls there is nothing to look at, and no need of a copy that is behind them.
                    Some(Ask::Examine { .. } | Ask::Helper { .. }) => {}
                    None => break,
                },
            }
        }
        self.finish().await;
    }

    /// Asks for the end of everything by closing the link, and hears the last exits before that.
    async fn finish(mut self) {
        self.asked.close();
        let ended = async {
            if self.link.send(&Request::Clear {}, &[]).await.is_ok() {
                let _ = self.link.close_sending();
            }
            while let Ok(Some((event, files))) = self.link.receive::<Event>().await {
                self.processes.event(event, files);
            }
            let _ = self.child.wait().await;
        };
        let is_over = timeout(END_LIMIT, ended).await.is_ok();
        if !is_over {
            let _ = self.child.kill().await;
        }
        if let Some(group) = self.group.take() {
            // Only a keeper that was killed has left its group.
            let _ = tokio::task::spawn_blocking(move || empty(&group)).await;
        }
        self.processes.end();
    }
}

/// Kills what is in the group and removes it; does nothing where it is gone.
fn empty(group: &OwnedFd) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let kill = rustix::fs::openat(group, "cgroup.kill", flags, Mode::empty())?;
    rustix::io::write(kill, b"1")?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(group));
    let path = PathBuf::from(std::ffi::OsString::from(
        rustix::fs::readlink(path, Vec::new())?
            .into_string()
            .unwrap_or_default(),
    ));
    for _ in 0..1000 {
        match rustix::fs::unlinkat(rustix::fs::CWD, &path, AtFlags::REMOVEDIR) {
            Err(rustix::io::Errno::BUSY) => std::thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
    Err(rustix::io::Errno::BUSY)
}
