//! The task that keeps one pool: it alone asks zygotes for children, starts zygotes and lets them go.

use std::{sync::Arc, time::Duration};

use bulkhead_model::plugin::MemoryClass;
use bulkhead_sandbox::memory::{MemoryGroup, MemoryGroups};
use bulkhead_zygote::control::{ENTRANCES_MAX, Event};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    StartError, ZygoteSettings,
    standby::Standby,
    zygote::{Said, Zygote, ZygoteId},
};

/// Between two tries to start a zygote: doubling from the first to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(10);
/// After a fork that failed.
const FORK_PAUSE: Duration = Duration::from_millis(50);
/// What zygotes say, between them and the keeper.
const SAID_MAX: usize = 256;
/// How long the end of everything is waited for.
const END_MAX: Duration = Duration::from_secs(10);

pub(super) struct Keeper {
    settings: ZygoteSettings,
    memory: MemoryClass,
    /// How many processes stand ready, once any was asked for.
    target: usize,
    groups: MemoryGroups,
    standby: Arc<Standby>,
    tasks: TaskTracker,
    /// The current one, of which children are asked.
    current: Option<Zygote>,
    /// Ready to become the current one.
    next: Option<Zygote>,
    retiring: Vec<Zygote>,
    starting: JoinSet<Result<Zygote, StartError>>,
    started: u64,
    pause: Duration,
    /// Nothing is started or asked for before.
    not_before: Instant,
    sender: mpsc::Sender<Said>,
    said: mpsc::Receiver<Said>,
}

impl Keeper {
    pub(super) fn new(
        settings: ZygoteSettings,
        memory: MemoryClass,
        target: usize,
        groups: MemoryGroups,
        standby: Arc<Standby>,
        tasks: TaskTracker,
    ) -> Self {
        let (sender, said) = mpsc::channel(SAID_MAX);
        Self {
            settings,
            memory,
            target,
            groups,
            standby,
            tasks,
            current: None,
            next: None,
            retiring: Vec::new(),
            starting: JoinSet::new(),
            started: 1,
            pause: PAUSE_FIRST,
            not_before: Instant::now(),
            sender,
            said,
        }
    }

    pub(super) async fn run(mut self, first: Option<Zygote>, stop: CancellationToken) {
        if let Some(first) = first {
            self.ready(first);
        }
        loop {
            self.provide();
            let paused = self.not_before > Instant::now();
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.standby.nudge.notified() => {}
                Some(said) = self.said.recv() => self.heard(said),
                Some(Ok(started)) = self.starting.join_next(), if !self.starting.is_empty() => {
                    self.has_started(started);
                }
                () = sleep_until(self.not_before), if paused => {}
            }
        }
        self.end().await;
    }

    /// Whatever is to be done now to have what is needed: idempotent, and called after everything that happens.
    fn provide(&mut self) {
        let zygotes = self.zygotes().count();
        self.standby.set_zygotes(zygotes);
        self.retire();
        let need = self.standby.need();
        let is_wanted = need.waiting > 0 || self.started > 1 || self.current.is_some();
        if Instant::now() < self.not_before || !is_wanted {
            return;
        }
        if self.wants_another() {
            self.start_another();
        }
        let Some(current) = &mut self.current else {
            return;
        };
        let left = self.settings.retire_after.saturating_sub(current.forks) as usize;
        let wanted = (self.target + need.waiting).saturating_sub(need.ready + current.asked());
        let count = wanted
            .min(ENTRANCES_MAX.saturating_sub(current.asked()))
            .min(left);
        self.fork(count);
    }

    fn fork(&mut self, count: usize) {
        let mut groups = Vec::with_capacity(count);
        while groups.len() < count && self.groups.has_room() {
            match self.groups.take() {
                Ok(group) => groups.push(group),
                Err(error) => {
                    tracing::error!(%error, "a plugin's memory group cannot be had");
                    self.not_before = Instant::now() + FORK_PAUSE;
                    break;
                }
            }
        }
        let Some(current) = &mut self.current else {
            return;
        };
        if groups.is_empty() {
            return;
        }
        if let Err(groups) = current.fork(groups) {
            self.put_back(groups);
            self.not_before = Instant::now() + FORK_PAUSE;
        }
    }

    /// The current zygote goes when it is used up and the next one stands; a retiring one when its last child is dead.
    fn retire(&mut self) {
        let is_used_up = |zygote: &Zygote| zygote.forks >= self.settings.retire_after;
        if self.current.as_ref().is_none_or(is_used_up)
            && let Some(next) = self.next.take()
            && let Some(used_up) = self.current.replace(next)
        {
            self.retiring.push(used_up);
        }
        for zygote in &self.retiring {
            if zygote.is_childless() {
                zygote.end();
            }
        }
    }

    /// Whether a zygote has to be started so that one is there when the current one is used up.
    fn wants_another(&self) -> bool {
        let is_half_used = |zygote: &Zygote| zygote.forks >= self.settings.retire_after.div_ceil(2);
        self.next.is_none()
            && self.starting.is_empty()
            && self.current.as_ref().is_none_or(is_half_used)
    }

    fn start_another(&mut self) {
        let id = ZygoteId(self.started);
        self.started += 1;
        let (settings, memory, tasks) = (self.settings.clone(), self.memory, self.tasks.clone());
        self.starting
            .spawn(async move { Zygote::start(id, &settings, memory, &tasks).await });
    }

    fn has_started(&mut self, started: Result<Zygote, StartError>) {
        match started {
            Ok(zygote) => {
                self.pause = PAUSE_FIRST;
                self.ready(zygote);
            }
            Err(error) => {
                tracing::error!(%error, "a zygote could not be started");
                self.not_before = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(PAUSE_LAST);
            }
        }
    }

    fn ready(&mut self, zygote: Zygote) {
        zygote.report(self.sender.clone(), &self.tasks);
        if self.current.is_none() {
            self.current = Some(zygote);
        } else {
            self.next = Some(zygote);
        }
    }

    fn heard(&mut self, (id, event): Said) {
        let Some(event) = event else {
            self.is_dead(id);
            return;
        };
        let Some(zygote) = self.zygotes().find(|zygote| zygote.id == id) else {
            return;
        };
        let free = match event {
            Event::Forked(child) => {
                match zygote.forked(child) {
                    Ok(process) => self.standby.put(id, process),
                    Err(error) => {
                        tracing::error!(%error, "a plugin's process cannot be spoken with")
                    }
                }
                None
            }
            Event::ForkFailed { errno } => {
                let group = zygote.fork_failed();
                let error = std::io::Error::from_raw_os_error(errno);
                tracing::error!(%error, "forking a plugin's process");
                self.not_before = Instant::now() + FORK_PAUSE;
                group
            }
            Event::Exited { id, ending } => zygote.exited(id, ending),
            Event::Ready => None,
        };
        self.put_back(free);
    }

    fn is_dead(&mut self, id: ZygoteId) {
        self.standby.forget(id);
        let is_it = |zygote: &mut Zygote| zygote.id == id;
        let retired = self.retiring.iter().position(|zygote| zygote.id == id);
        let dead = match retired {
            Some(index) => Some(self.retiring.swap_remove(index)),
            None => {
                tracing::error!("a zygote is dead that was not to die");
                self.current
                    .take_if(is_it)
                    .or_else(|| self.next.take_if(is_it))
            }
        };
        if let Some(dead) = dead {
            let groups = dead.bury(&self.tasks);
            self.put_back(groups);
        }
    }

    fn put_back(&mut self, groups: impl IntoIterator<Item = MemoryGroup>) {
        for group in groups {
            self.groups.put_back(group);
        }
    }

    fn zygotes(&mut self) -> impl Iterator<Item = &mut Zygote> {
        self.current
            .iter_mut()
            .chain(&mut self.next)
            .chain(&mut self.retiring)
    }

    /// Ends every zygote, and waits for the news of it.
    async fn end(mut self) {
        self.standby.close();
        while let Some(started) = self.starting.join_next().await {
            if let Ok(Ok(zygote)) = started {
                self.ready(zygote);
            }
        }
        self.zygotes().for_each(|zygote| zygote.end());
        let deadline = Instant::now() + END_MAX;
        while self.zygotes().next().is_some() {
            tokio::select! {
                Some(said) = self.said.recv() => self.heard_at_the_end(said),
                () = sleep_until(deadline) => break,
            }
        }
    }

    /// Deaths only: nothing is given out any more.
    fn heard_at_the_end(&mut self, (id, event): Said) {
        match event {
            None => {
                self.retiring
                    .extend(self.current.take().into_iter().chain(self.next.take()));
                self.is_dead(id);
            }
            Some(Event::Exited { .. }) => self.heard((id, event)),
            Some(_) => {}
        }
    }
}
