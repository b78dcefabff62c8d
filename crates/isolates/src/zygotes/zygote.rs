//! One zygote, as its keeper has it: the conversation, and the children that it answers for.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bulkhead_model::plugin::MemoryClass;
use bulkhead_sandbox::memory::{MemoryGroup, MemoryUse};
use bulkhead_zygote::{
    Options,
    control::{Child, ChildId, Control, ControlError, Ending, Event},
    launch,
};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, unix::AsyncFd},
    net::UnixStream,
    process::ChildStderr,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::ZygoteSettings;
use crate::process::{Death, Grip, Process};

/// How long a zygote may take from its start to its `Ready`.
const START_MAX: Duration = Duration::from_secs(60);
/// The last words of a zygote that are kept, and the longest line of them.
const WORDS_BYTES_MAX: usize = 4 << 10;
const LINE_BYTES_MAX: u64 = 4 << 10;
/// A wall could not be built: the zygote's exit code.
const REFUSED: i32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ZygoteId(pub(super) u64);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("starting {program}")]
    Launch { program: String, source: io::Error },
    /// This machine cannot lock plugins in: the zygote's own words have the remedy.
    #[error("{0}")]
    WallMissing(String),
    #[error("what runs plugins ended at its start ({status}): {words}")]
    Ended { status: String, words: String },
    #[error("what runs plugins was not ready after {} s: {words}", START_MAX.as_secs())]
    TooSlow { words: String },
}

pub(super) struct Zygote {
    pub(super) id: ZygoteId,
    control: Arc<AsyncFd<Control>>,
    process: std::process::Child,
    /// Groups for which a child was asked, in the order of asking.
    asked: VecDeque<MemoryGroup>,
    children: HashMap<ChildId, Tracked>,
    /// Forks so far, asked ones too.
    pub(super) forks: u32,
}

struct Tracked {
    grip: Arc<ChildGrip>,
    death: oneshot::Sender<Death>,
}

/// By what an invocation holds its process. The group goes back to the pool when the process is dead; its last numbers
/// stay.
struct ChildGrip {
    pidfd: OwnedFd,
    group: Mutex<Held>,
}

enum Held {
    Group(MemoryGroup),
    Final(Option<MemoryUse>),
}

/// What a zygote says, and which; none at its end.
pub(super) type Said = (ZygoteId, Option<Event>);

impl Zygote {
    /// Starts one, and returns when it is ready.
    pub(super) async fn start(
        id: ZygoteId,
        settings: &ZygoteSettings,
        memory: MemoryClass,
        tasks: &TaskTracker,
    ) -> Result<Self, StartError> {
        let options = Options {
            memory_mib: memory.limit_mib(),
            isolate: settings.isolate,
            test_hooks: settings.test_hooks,
        };
        let failed = |source| StartError::Launch {
            program: settings.program.display().to_string(),
            source,
        };
        let mut launched = launch(&settings.program, &options, Stdio::piped()).map_err(failed)?;
        let words = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = launched.process.stderr.take() {
            let stderr = ChildStderr::from_std(stderr).map_err(failed)?;
            tasks.spawn(listen_to(stderr, Arc::clone(&words)));
        }
        let control = Arc::new(watch(launched.control).map_err(failed)?);
        let mut this = Self {
            id,
            control,
            process: launched.process,
            asked: VecDeque::new(),
            children: HashMap::new(),
            forks: 0,
        };
        match timeout(START_MAX, next(&this.control)).await {
            Ok(Some(Event::Ready)) => Ok(this),
            Ok(_) => {
                let status = this.wait_in(tasks).await;
                // What it said last may still be on its way.
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(ended(status, &lock(&words)))
            }
            Err(_) => {
                // It is of no use, however it is.
                let _ = this.process.kill();
                this.wait_in(tasks).await;
                let words = lock(&words).clone();
                Err(StartError::TooSlow { words })
            }
        }
    }

    /// Tells the keeper whatever this zygote says, from a task of its own.
    pub(super) fn report(&self, said: mpsc::Sender<Said>, tasks: &TaskTracker) {
        let (id, control) = (self.id, Arc::clone(&self.control));
        tasks.spawn(async move {
            loop {
                let event = next(&control).await;
                let is_end = event.is_none();
                if said.send((id, event)).await.is_err() || is_end {
                    return;
                }
            }
        });
    }

    /// Asks for a child in each of the groups. Those that could not be asked for come back.
    pub(super) fn fork(&mut self, groups: Vec<MemoryGroup>) -> Result<(), Vec<MemoryGroup>> {
        let opened: Result<Vec<_>, _> = groups.iter().map(MemoryGroup::entrance).collect();
        let entrances = match opened {
            Ok(entrances) => entrances,
            Err(error) => {
                tracing::error!(%error, "a plugin's memory group cannot be entered");
                return Err(groups);
            }
        };
        let borrowed: Vec<BorrowedFd<'_>> = entrances.iter().map(|file| file.as_fd()).collect();
        if let Err(error) = self.control.get_ref().fork(&borrowed) {
            tracing::warn!(%error, "a zygote takes no request");
            return Err(groups);
        }
        self.forks += u32::try_from(groups.len()).unwrap_or(u32::MAX);
        self.asked.extend(groups);
        Ok(())
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Whether nothing of it lives or is about to.
    pub(super) fn is_childless(&self) -> bool {
        self.asked.is_empty() && self.children.is_empty()
    }

    /// The oldest asked-for child is there.
    pub(super) fn forked(&mut self, child: Child) -> io::Result<Process> {
        let group = self.asked.pop_front();
        let held = group.map_or(Held::Final(None), Held::Group);
        let grip = Arc::new(ChildGrip {
            pidfd: child.pidfd,
            group: Mutex::new(held),
        });
        let (death, dies) = oneshot::channel();
        let tracked = Tracked {
            grip: Arc::clone(&grip),
            death,
        };
        self.children.insert(child.id, tracked);
        let pipe = std::os::unix::net::UnixStream::from(child.pipe);
        pipe.set_nonblocking(true)?;
        let grip: Arc<dyn Grip> = grip;
        UnixStream::from_std(pipe)
            .inspect_err(|_| grip.kill())
            .map(|pipe| Process::new(pipe, dies, Arc::clone(&grip)))
    }

    /// The oldest asked-for child will not be there: its group.
    pub(super) fn fork_failed(&mut self) -> Option<MemoryGroup> {
        self.asked.pop_front()
    }

    /// A child is dead. Its group is free again.
    pub(super) fn exited(&mut self, id: ChildId, ending: Ending) -> Option<MemoryGroup> {
        self.children.remove(&id)?.die(Some(ending))
    }

    /// The zygote is dead, and so is everything it made: all its groups.
    pub(super) fn bury(mut self, tasks: &TaskTracker) -> Vec<MemoryGroup> {
        let asked = std::mem::take(&mut self.asked);
        let children = std::mem::take(&mut self.children);
        let died = children.into_values().filter_map(|child| child.die(None));
        let groups = asked.into_iter().chain(died).collect();
        tasks.spawn_blocking(move || {
            // Its conversation is over, so it ends; only that it was waited for counts.
            let _ = self.process.wait();
        });
        groups
    }

    /// Ends the conversation, and with it the zygote; its end is reported like any other.
    pub(super) fn end(&self) {
        // It may have ended by itself.
        let _ = rustix::net::shutdown(self.control.get_ref(), rustix::net::Shutdown::Both);
    }

    async fn wait_in(mut self, tasks: &TaskTracker) -> Option<ExitStatus> {
        drop(self.control);
        let waited = tasks.spawn_blocking(move || self.process.wait());
        timeout(START_MAX, waited).await.ok()?.ok()?.ok()
    }
}

impl Tracked {
    fn die(self, ending: Option<Ending>) -> Option<MemoryGroup> {
        let mut held = lock(&self.grip.group);
        let Held::Group(mut group) = std::mem::replace(&mut *held, Held::Final(None)) else {
            return None;
        };
        let used = group.used().ok();
        *held = Held::Final(used);
        drop(held);
        // Nobody may want to know.
        let _ = self.death.send(Death {
            ending,
            oom_killed: used.is_some_and(|used| used.oom_kills > 0),
            memory_peak_bytes: used.and_then(|used| used.peak_bytes),
        });
        Some(group)
    }
}

impl Grip for ChildGrip {
    fn kill(&self) {
        // It may be dead.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    fn memory_peak_bytes(&self) -> Option<u64> {
        match &mut *lock(&self.group) {
            Held::Group(group) => group.used().ok()?.peak_bytes,
            Held::Final(used) => used.as_ref()?.peak_bytes,
        }
    }
}

#[expect(
    deprecated,
    reason = "its replacement is unsafe; a `Control` owns its one descriptor and never gives it away"
)]
fn watch(control: Control) -> io::Result<AsyncFd<Control>> {
    AsyncFd::new(control)
}

/// None at the conversation's end, or where it makes no sense any more.
async fn next(control: &AsyncFd<Control>) -> Option<Event> {
    loop {
        let mut ready = control.readable().await.ok()?;
        match control.get_ref().receive() {
            Ok(event) => return event,
            Err(ControlError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                ready.clear_ready();
            }
            Err(error) => {
                tracing::error!(%error, "a zygote is not understood");
                return None;
            }
        }
    }
}

/// What a zygote says of itself goes into the log, line by line, and its last words are kept.
async fn listen_to(stderr: ChildStderr, words: Arc<Mutex<String>>) {
    let mut lines = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        let read = (&mut lines)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        let line = String::from_utf8_lossy(&line);
        tracing::info!("zygote: {}", line.trim_end());
        let mut words = lock(&words);
        words.push_str(&line);
        let excess = words.len().saturating_sub(WORDS_BYTES_MAX);
        let cut = words.ceil_char_boundary(excess);
        words.drain(..cut);
    }
}

fn ended(status: Option<ExitStatus>, words: &str) -> StartError {
    let words = words.trim().to_owned();
    if status.and_then(|status| status.code()) == Some(REFUSED) {
        return StartError::WallMissing(words);
    }
    let status = status.map_or_else(|| "it does not end".to_owned(), |status| status.to_string());
    StartError::Ended { status, words }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
