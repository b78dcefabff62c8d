//! The one task that owns a living sandbox. All others send requests to its queue.
//!
//! ```text
//!            ┌── Ask::Spawn, Ask::Signal ──▶ PID 1 ──Spawned, Exited──▶ answers
//! [ alive ] ─┤
//!            └── an end is asked for, the queue is closed (dropped), Report::Ended, the launcher's end of file
//!                   ▼
//! [ ending ] ── the launcher kills, waits, removes, reports ──▶ [ ended ] outcome for all who ask
//!                   └─ it died first: the parent does the same itself
//! ```
//!
//! The first cause to arrive counts.

use std::{
    io,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use bulkhead_init::wire::{Control, Event, Report, Stop};
use bulkhead_model::outcome::Outcome;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    cgroup::{self, Counters, Name},
    create::{bury, kill},
    engine::Core,
    layout,
    link::Link,
    plan::{BoundSocket, Plan},
    process::Target,
    processes::{Answer, Processes, Start},
    sandbox::{Cause, Sandbox},
    shared::{LOOK_EVERY, Watch},
    verdict::{DiskUse, Seen, Stopped, judge},
};

/// Requests that wait while PID 1 starts a process.
const QUEUE: usize = 64;
/// The launcher kills at once and waits for memory to be given back; more than this it never needs.
const ENDING_LIMIT: Duration = Duration::from_secs(60);

/// Our ends of the links to a sandbox's two processes.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) control: Link,
    pub(crate) requests: Link,
    /// The launcher's pid, once it has said it.
    pub(crate) launcher: Option<u32>,
}

/// What others want of a sandbox.
#[derive(Debug)]
pub(crate) enum Ask {
    Spawn(Box<Start>),
    Signal {
        token: u32,
        target: Target,
        signal: i32,
    },
    /// A look around from inside, written to this file.
    Examine {
        output: OwnedFd,
        answer: Answer,
    },
    /// A further mode of the helper inside.
    Helper {
        arguments: Vec<Vec<u8>>,
        files: [OwnedFd; 2],
        answer: Answer,
    },
    /// Kill every process, but not the sandbox.
    Clear,
}

pub(crate) struct Driver {
    core: Arc<Core>,
    name: Name,
    plan: Plan,
    links: Links,
    asks: mpsc::Receiver<Ask>,
    ends: mpsc::Receiver<Cause>,
    watched: Vec<OwnedFd>,
    shared: Option<Arc<Watch>>,
    /// The thorough look at it, while it is taken.
    looking: Option<JoinHandle<Option<Stopped>>>,
    processes: Processes,
    clock: Clock,
    /// Why it ends, once that is known.
    stopped: Option<Stopped>,
    outcome: watch::Sender<Option<Outcome>>,
}

/// When the sandbox and its first process began.
struct Clock {
    made: Instant,
    first_process: Option<Instant>,
}

/// What the task does next.
enum Next {
    Go,
    Ended(Box<Report>),
    LauncherDied,
    LauncherHangs,
}

impl Driver {
    /// Hands a sandbox that is ready to its task.
    pub(crate) fn start(
        core: Arc<Core>,
        name: Name,
        plan: Plan,
        links: Links,
        listeners: Vec<BoundSocket>,
        watched: Vec<OwnedFd>,
        shared: Option<Watch>,
    ) -> Sandbox {
        let shared = shared.map(Arc::new);
        let (asking, asks) = mpsc::channel(QUEUE);
        let (ending, ends) = mpsc::channel(1);
        let (outcome, told) = watch::channel(None);
        let tasks = core.tasks.clone();
        let driver = Self {
            core,
            name,
            plan,
            links,
            asks,
            ends,
            watched,
            shared,
            looking: None,
            processes: Processes::default(),
            clock: Clock {
                made: Instant::now(),
                first_process: None,
            },
            stopped: None,
            outcome,
        };
        tasks.spawn(driver.run());
        Sandbox::new(name.id, asking, ending, told, listeners)
    }

    async fn run(mut self) {
        let mut requests_open = true;
        let mut look = tokio::time::interval(LOOK_EVERY);
        let next = loop {
            let next = tokio::select! {
                biased;
                event = self.links.requests.receive::<Event>(), if requests_open => match event {
                    Ok(Some((event, files))) => { self.processes.event(event, files); Next::Go }
                    // The launcher notices the same and reports.
                    Ok(None) | Err(_) => { requests_open = false; Next::Go }
                },
                report = self.links.control.receive::<Report>() => self.report(report),
                // Before all other requests, and past them: a sandbox that takes nothing can still be ended.
                cause = self.ends.recv() => {
                    self.ending(Stopped::Asked(cause.unwrap_or(Cause::Cancelled))).await
                }
                () = self.processes.deliver(&self.links.requests), if self.processes.has_letters() => Next::Go,
                ask = self.asks.recv(), if self.processes.has_room() => match ask {
                    Some(ask) => { self.ask(ask).await; Next::Go }
                    None => self.ending(Stopped::Asked(Cause::Cancelled)).await,
                },
                over = looked(&mut self.looking), if self.looking.is_some() => match over {
                    Some(stopped) => self.ending(stopped).await,
                    None => Next::Go,
                },
                _ = look.tick(), if self.shared.is_some() => { self.look(); Next::Go }
            };
            if !matches!(next, Next::Go) {
                break next;
            }
        };
        self.finish(next).await;
    }

    /// Looks at a shared workspace. The thorough look is taken apart, and only when the cheap one gives reason.
    fn look(&mut self) {
        let due = self.shared.as_ref().filter(|watch| watch.is_due());
        if let (Some(watch), None) = (due, &self.looking) {
            let watch = Arc::clone(watch);
            let look = move || watch.over().map(Stopped::DiskWatch);
            self.looking = Some(tokio::task::spawn_blocking(look));
        }
    }

    fn report(&mut self, report: io::Result<Option<(Report, Vec<OwnedFd>)>>) -> Next {
        match report {
            Ok(Some((report @ Report::Ended { .. }, _))) => Next::Ended(Box::new(report)),
            Ok(Some((Report::Started { launcher }, _))) => {
                self.links.launcher = Some(launcher);
                Next::Go
            }
            Ok(Some(_)) => Next::Go,
            Ok(None) | Err(_) => Next::LauncherDied,
        }
    }

    /// Asks the launcher to end it and waits for its report.
    async fn ending(&mut self, why: Stopped) -> Next {
        self.stopped = Some(why);
        let ended = async {
            if self
                .links
                .control
                .send(&Control::End {}, &[])
                .await
                .is_err()
            {
                return Next::LauncherDied;
            }
            loop {
                let report = self.links.control.receive().await;
                match self.report(report) {
                    Next::Go => {}
                    next => return next,
                }
            }
        };
        timeout(ENDING_LIMIT, ended)
            .await
            .unwrap_or(Next::LauncherHangs)
    }

    async fn ask(&mut self, ask: Ask) {
        match ask {
            Ask::Spawn(start) => self.spawn(*start).await,
            Ask::Signal {
                token,
                target,
                signal,
            } => self.processes.signal(token, target, signal),
            Ask::Examine { output, answer } => self.processes.examine(output, answer),
            Ask::Helper {
                arguments,
                files,
                answer,
            } => self.processes.helper(arguments, files, answer),
            Ask::Clear => self.processes.clear(),
        }
    }

    async fn spawn(&mut self, start: Start) {
        if self.clock.first_process.is_none() {
            self.clock.first_process = Some(Instant::now());
            let _ = self.links.control.send(&Control::StartClock {}, &[]).await;
        }
        self.processes.spawn(start);
    }

    async fn finish(mut self, next: Next) {
        let (stopped, counters, reaped_cpu_us, remains) = match next {
            Next::Ended(report) => self.launcher_s_account(*report),
            Next::Go | Next::LauncherDied => self.clean_up().await,
            Next::LauncherHangs => {
                kill(self.links.launcher);
                self.clean_up().await
            }
        };
        let seen = Seen {
            stopped: self.stopped.unwrap_or(stopped),
            counters,
            disks: self.disks(),
            wall_ms: self.wall_ms(),
            reaped_cpu_us,
            remains,
        };
        // The last holders of the sandbox's file systems go before its end is told.
        self.watched.clear();
        bury(&self.links.control, self.links.launcher).await;
        self.processes.end();
        self.outcome.send_replace(Some(judge(&seen)));
    }

    fn launcher_s_account(&self, report: Report) -> (Stopped, Counters, u64, Vec<String>) {
        let Report::Ended {
            stop,
            usage,
            readings,
            remains,
        } = report
        else {
            return (Stopped::LauncherDied, Counters::default(), 0, Vec::new());
        };
        let stopped = match stop {
            Stop::Asked {} => Stopped::Asked(Cause::Cancelled),
            Stop::TimeLimit {} => Stopped::TimeLimit {
                limit_ms: self.plan.limits.time_ms,
            },
            Stop::InitDied { status } => Stopped::InitDied { status },
        };
        (
            stopped,
            self.core.cgroups.count(&readings),
            usage.cpu_us,
            remains,
        )
    }

    /// The launcher is dead, and PID 1 with it. Its groups are left, with what they counted.
    async fn clean_up(&mut self) -> (Stopped, Counters, u64, Vec<String>) {
        let (groups, _) = self.core.cgroups.groups(&self.name, &self.plan.limits);
        let work = tokio::task::spawn_blocking(move || cgroup::read_and_destroy(&groups));
        let (readings, destroyed) = work
            .await
            .unwrap_or_else(|error| (Vec::new(), Err(io::Error::other(error))));
        let remains = destroyed
            .err()
            .map(|error| format!("cgroups of {}: {error}", self.name));
        let counters = self.core.cgroups.count(&readings);
        (
            Stopped::LauncherDied,
            counters,
            0,
            remains.into_iter().collect(),
        )
    }

    fn disks(&self) -> Vec<DiskUse> {
        let dirs = layout::watched();
        let measure = |(dir, file): (String, &OwnedFd)| {
            let stat = rustix::fs::fstatvfs(file).ok()?;
            Some(DiskUse {
                dir,
                size_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
                free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
                files: stat.f_files,
                free_files: stat.f_ffree,
            })
        };
        dirs.into_iter()
            .zip(&self.watched)
            .filter_map(measure)
            .collect()
    }

    fn wall_ms(&self) -> u64 {
        let since = self.clock.first_process.unwrap_or(self.clock.made);
        u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What the look came to. Safe to cancel: the look goes on.
async fn looked(looking: &mut Option<JoinHandle<Option<Stopped>>>) -> Option<Stopped> {
    let over = match looking {
        Some(look) => look.await.ok().flatten(),
        None => std::future::pending().await,
    };
    *looking = None;
    over
}
