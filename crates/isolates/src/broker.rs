//! The service itself: admits invocations, gives them a process, and says how they ended.
//!
//! ```text
//! Start ─▶ draining? ─▶ bundle (NeedBundle ⇄ Bundle) ─▶ on hold? ─▶ a slot, or shed ─▶ a process ─▶ drive ─▶ judge ─▶ Result
//!              │                 │                         │               │              │
//!              └─────────────────┴────── NotRun ───────────┴───────────────┴──────────────┘
//! ```
//!
//! Each arrow can be left by the caller's going away. What is not run is nobody's fault (P7).

mod check;
mod outcome;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bulkhead_wire::{
    isolates::{
        NeedBundle, NotRun, Result as Outcome, StatusResponse, from_service, not_run::Reason,
        status_response::State,
    },
    pipe,
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Status, Streaming};

use crate::{
    bundles::{Bundle, Bundles, SOURCE_BYTES_MAX},
    caller::{Caller, Gone, StreamCaller},
    context::InvocationContext,
    fault::millis,
    hold::{self, Holds},
    host_calls::HostCalls,
    invocation::{Job, NotReady, ReadyProcess, life::Errand},
    order::Order,
    platform_link::PlatformLink,
    process::{NoProcess, Processes},
    settings::Settings,
    slots::{Slot, Slots},
    stream_link::StreamLink,
};
use bulkhead_model::plugin::MemoryClass;
use bulkhead_wire::isolates::{FromService, ToService};
use outcome::Judged;

/// How often another process is taken where one was dead before it was given anything.
const PROCESS_TRIES: u32 = 3;
/// When a caller that was shed had better try again.
const SHED_RETRY: Duration = Duration::from_millis(250);

/// One service. Shared by all connections.
pub struct Broker {
    settings: Settings,
    processes: Arc<dyn Processes>,
    host_calls: Arc<dyn HostCalls>,
    slots: Slots,
    bundles: Bundles,
    holds: Mutex<Holds>,
    draining: CancellationToken,
    /// Owns every invocation, and what is compiled besides.
    tasks: TaskTracker,
    /// Code cache is made for one bundle at a time: it may wait, invocations may not.
    compiling: Semaphore,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    present: AtomicU32,
    invocations: AtomicU64,
    faults: AtomicU64,
    killed: AtomicU64,
    shed: AtomicU64,
}

impl Broker {
    pub fn new(
        settings: Settings,
        processes: Arc<dyn Processes>,
        host_calls: Arc<dyn HostCalls>,
    ) -> Self {
        Self {
            slots: Slots::new(settings.slots, settings.queued_max, settings.queue_wait),
            bundles: Bundles::new(settings.bundles_bytes),
            holds: Mutex::default(),
            draining: CancellationToken::new(),
            tasks: TaskTracker::new(),
            compiling: Semaphore::new(1),
            counts: Counts::default(),
            settings,
            processes,
            host_calls,
        }
    }

    /// From now on nothing new is run.
    pub fn begin_drain(&self) {
        self.draining.cancel();
        self.tasks.close();
    }

    /// Waits for what runs; how much of it still does when the time is over.
    pub async fn drain(&self, wait_max: Duration) -> u32 {
        self.begin_drain();
        // In time or not, what is left is said.
        let _ = timeout(wait_max, self.tasks.wait()).await;
        u32::try_from(self.tasks.len()).unwrap_or(u32::MAX)
    }

    pub fn status(&self) -> StatusResponse {
        let census = self.processes.census();
        let (present, running) = (self.counts.present.load(Relaxed), self.slots.running());
        let queued = u32::try_from(self.slots.queued()).unwrap_or(u32::MAX);
        let state = if self.draining.is_cancelled() {
            State::Draining
        } else if census.zygotes == 0 {
            State::Starting
        } else {
            State::Serving
        };
        StatusResponse {
            state: state.into(),
            running,
            waiting: present.saturating_sub(running).saturating_sub(queued),
            queued,
            standby: census.standby,
            zygotes: census.zygotes,
            bundles: u32::try_from(self.bundles.count()).unwrap_or(u32::MAX),
            invocations: self.counts.invocations.load(Relaxed),
            faults: self.counts.faults.load(Relaxed),
            killed: self.counts.killed.load(Relaxed),
            shed: self.counts.shed.load(Relaxed),
            on_hold: u32::try_from(self.holds().on_hold(Instant::now())).unwrap_or(u32::MAX),
        }
    }

    /// Runs one invocation in a task of its own. Its frames go into `frames`, the last of them is the result.
    pub(crate) fn invoke(
        self: &Arc<Self>,
        order: Order,
        inbound: Streaming<ToService>,
        frames: mpsc::Sender<Result<FromService, Status>>,
    ) {
        let broker = Arc::clone(self);
        let token = order.token.clone();
        let link = Arc::new(StreamLink::new(frames.clone(), token));
        let stream = StreamCaller::new(frames.clone(), inbound, Arc::clone(&link));
        self.tasks.spawn(async move {
            let mut caller = Caller::Stream(Box::new(stream));
            let last = broker
                .run(order, link, &mut caller)
                .await
                .map(|result| FromService {
                    frame: Some(from_service::Frame::Result(result)),
                });
            // A caller that is gone wants no result.
            let _ = frames.send(last).await;
        });
    }

    async fn run(
        self: &Arc<Self>,
        order: Order,
        link: Arc<dyn PlatformLink>,
        caller: &mut Caller,
    ) -> Result<Outcome, Status> {
        let arrived = Instant::now();
        self.counts.invocations.fetch_add(1, Relaxed);
        let key = hold::Key {
            installation: order.authority.installation.clone(),
            bundle: order.bundle,
        };
        let judged = match self.admit(&order, &key, caller).await {
            Ok((bundle, slot)) => {
                let judged = self
                    .run_admitted(order, bundle, slot, link, caller, arrived)
                    .await;
                if matches!(judged, Err(Refused::NotRun(_))) {
                    self.holds().ended(&key, hold::End::Other, Instant::now());
                }
                judged
            }
            Err(refused) => Err(refused),
        };
        match judged {
            Ok(judged) => {
                self.holds().ended(&key, judged.end, Instant::now());
                self.counts
                    .faults
                    .fetch_add(u64::from(judged.is_fault), Relaxed);
                self.counts
                    .killed
                    .fetch_add(u64::from(judged.was_killed), Relaxed);
                Ok(judged.outcome)
            }
            Err(Refused::NotRun(not_run)) => {
                let is_shed = not_run.reason() == Reason::Shed;
                self.counts.shed.fetch_add(u64::from(is_shed), Relaxed);
                Ok(outcome::not_run(not_run, arrived.elapsed()))
            }
            Err(Refused::Broke(status)) => Err(status),
        }
    }

    /// Everything before a process is needed.
    async fn admit(
        self: &Arc<Self>,
        order: &Order,
        key: &hold::Key,
        caller: &mut Caller,
    ) -> Result<(Arc<Bundle>, Slot), Refused> {
        if self.draining.is_cancelled() {
            return Err(refused(
                Reason::Draining,
                "the service takes nothing new",
                Duration::ZERO,
            ));
        }
        if self.counts.present.load(Relaxed) as usize >= self.settings.invocations_max {
            return Err(shed("as many invocations as may be are under way"));
        }
        let bundle = self.bundle(order, caller).await?;
        self.holds().admit(key, Instant::now()).map_err(|retry_after| {
            let message = "the plugin ended its process several times in a row, and is not tried for a while";
            refused(Reason::OnHold, message, retry_after)
        })?;
        let slot = tokio::select! {
            gone = caller.gone() => Err(gone.into()),
            slot = self.slots.begin() => slot.map_err(|error| shed(&error.to_string())),
        };
        if slot.is_err() {
            // It was let through, and nothing came of it.
            self.holds().ended(key, hold::End::Other, Instant::now());
        }
        Ok((bundle, slot?))
    }

    async fn bundle(
        self: &Arc<Self>,
        order: &Order,
        caller: &mut Caller,
    ) -> Result<Arc<Bundle>, Refused> {
        if let Some(bundle) = self.bundles.get(&order.bundle) {
            return Ok(bundle);
        }
        caller.send(from_service::Frame::NeedBundle(NeedBundle {}));
        let brought = match caller {
            Caller::Stream(stream) => timeout(self.settings.bundle_wait, stream.bundle()).await,
            Caller::Nobody => return Err(unavailable("nobody has the bundle")),
        };
        let source = brought
            .map_err(|_| unavailable("the bundle did not come in time"))??
            .source;
        if source.len() > SOURCE_BYTES_MAX {
            return Err(Refused::Broke(Status::invalid_argument(
                "the bundle is longer than 8 MiB",
            )));
        }
        let bundle = Bundle::new(source);
        if bundle.hash != order.bundle {
            let words = "the bundle is not the one whose SHA-256 is in Start";
            return Err(Refused::Broke(Status::invalid_argument(words)));
        }
        Ok(self.bundles.insert(bundle))
    }

    async fn run_admitted(
        self: &Arc<Self>,
        order: Order,
        bundle: Arc<Bundle>,
        slot: Slot,
        link: Arc<dyn PlatformLink>,
        caller: &mut Caller,
        arrived: Instant,
    ) -> Result<Judged, Refused> {
        let _present = Present::new(&self.counts.present);
        let limits = order.authority.limits;
        let mut process = self
            .ready_process(limits.memory, Errand::Run, caller)
            .await?;
        self.compile_in_time(&bundle, &order.file);
        let start = start_of(&order, &bundle);
        let queued = arrived.elapsed();
        let deadline = Instant::now() + limits.wall;
        let context = Arc::new(InvocationContext::new(order.authority, link, deadline));
        let job = Job {
            start,
            host_calls: Arc::clone(&self.host_calls),
        };
        let driven = process
            .drive(job, Arc::clone(&context), slot, &self.slots, caller)
            .await;
        let peak = process.memory_peak_bytes();
        outcome::judge(driven, &context, queued, peak)
        // The process is dropped, and so ends, after its result is made: it is reaped while the answer is on its way.
    }

    async fn ready_process(
        &self,
        memory: MemoryClass,
        errand: Errand,
        caller: &mut Caller,
    ) -> Result<ReadyProcess, Refused> {
        for _ in 0..PROCESS_TRIES {
            let process = tokio::select! {
                gone = caller.gone() => return Err(gone.into()),
                process = self.processes.take(memory) => process?,
            };
            match ReadyProcess::new(process, errand, caller).await {
                Ok(ready) => return Ok(ready),
                Err(NotReady::Gone(gone)) => return Err(gone.into()),
                Err(NotReady::Process) => {
                    tracing::warn!("a plugin's process was dead before it was used")
                }
            }
        }
        Err(unavailable("no process for a plugin stays alive"))
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start_of(order: &Order, bundle: &Bundle) -> pipe::Start {
    pipe::Start {
        source: bundle.source.clone(),
        file: order.file.clone(),
        code_cache: bundle
            .code_cache()
            .map(|code| code.to_vec())
            .unwrap_or_default(),
        work: Some(pipe::start::Work::Run(pipe::Run {
            handler: order.handler.clone(),
            input_json: order.input_json.clone(),
            settings_json: order.settings_json.clone(),
            result_bytes_max: order.authority.limits.result_bytes,
        })),
    }
}

/// Counts an invocation while it is there.
struct Present<'a>(&'a AtomicU32);

impl<'a> Present<'a> {
    fn new(present: &'a AtomicU32) -> Self {
        present.fetch_add(1, Relaxed);
        Self(present)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Why an invocation has no result of its own.
#[derive(Debug)]
pub(crate) enum Refused {
    NotRun(NotRun),
    /// The caller broke the protocol: its stream ends with this.
    Broke(Status),
}

fn refused(reason: Reason, message: &str, retry_after: Duration) -> Refused {
    Refused::NotRun(NotRun {
        reason: reason.into(),
        message: message.to_owned(),
        retry_after_ms: millis(retry_after),
    })
}

fn shed(message: &str) -> Refused {
    refused(Reason::Shed, message, SHED_RETRY)
}

fn unavailable(message: &str) -> Refused {
    refused(Reason::Unavailable, message, Duration::ZERO)
}

impl From<Gone> for Refused {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Closed => refused(
                Reason::Cancelled,
                "the caller closed the stream",
                Duration::ZERO,
            ),
            Gone::Broke(status) => Self::Broke(status),
        }
    }
}

impl From<NoProcess> for Refused {
    fn from(error: NoProcess) -> Self {
        match error {
            NoProcess::Full => shed(&error.to_string()),
            NoProcess::TooSlow => unavailable(&error.to_string()),
            NoProcess::Ending => refused(Reason::Draining, &error.to_string(), Duration::ZERO),
        }
    }
}
