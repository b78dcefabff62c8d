//! The built-in executor: phases in session processes on this machine.
//!
//! ```text
//! control plane ── order, secrets ─▶ BuiltinExecutor ── socket on stdin ─▶ session process ─▶ sandbox
//!               ◀─ sink ───────────                  ◀─ frames ─────────
//! ```
//!
//! One task owns each phase from the moment when its process exists until nothing of it is left. The
//! executor's death closes the socket, which ends the session and its sandbox; what could not end by
//! itself (a stopped process) is found by [`Executor::sweep`] at the next start.

mod journal;
mod phase;
mod process;
mod relay;

use std::{ffi::OsString, io, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bulkhead_model::PhaseOrder;
use bulkhead_sandbox::{Engine, EngineConfig, Refusal, doctor};
use bulkhead_session::wire::Machine;
use tokio::sync::{Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Executor, FailureKind, LeaseKeeper, Orphan, OrphanKind, PhaseKey, PhaseReport, PhaseSecrets,
    PhaseSink, Place, Running, StartError,
};
use journal::Journal;
use phase::Phase;

/// What the built-in executor must be told by the program that embeds it.
#[derive(Debug, Clone)]
pub struct BuiltinConfig {
    /// The program that is a session's process, and the arguments that make it one.
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The program to offer inside sandboxes as `bulkhead`.
    pub offered_program: Option<PathBuf>,
    /// What sessions must know of the machine: the sandbox engine's directory, proxy, certificates.
    pub machine: Machine,
    /// How many phases run at once; the others queue.
    pub places: usize,
    /// A private directory for the journal of session processes.
    pub run_dir: PathBuf,
}

/// Runs phases in session processes on this machine.
#[derive(Debug)]
pub struct BuiltinExecutor {
    config: BuiltinConfig,
    journal: Arc<Journal>,
    places: Arc<Semaphore>,
    leases: LeaseKeeper,
    phases: TaskTracker,
    closing: CancellationToken,
}

impl BuiltinExecutor {
    pub fn new(config: BuiltinConfig) -> io::Result<Self> {
        let journal = Journal::open(config.run_dir.join("sessions"))?;
        Ok(Self {
            places: Arc::new(Semaphore::new(config.places.max(1))),
            journal: Arc::new(journal),
            leases: LeaseKeeper::start()?,
            phases: TaskTracker::new(),
            closing: CancellationToken::new(),
            config,
        })
    }
}

impl BuiltinExecutor {
    async fn engine(&self) -> Result<Engine, Refusal> {
        let machine = &self.config.machine;
        let mut config = EngineConfig::new(&machine.sandbox_dir);
        // As the sessions have it, so that they find the system prepared.
        config.extra_ca_pem = machine.extra_ca_pem.clone().map(String::into_bytes);
        Engine::open(config).await
    }
}

fn orphan(found: bulkhead_sandbox::Orphan) -> Orphan {
    Orphan {
        kind: OrphanKind::Sandbox,
        left: found.done.err(),
        what: found.found,
    }
}

#[async_trait]
impl Executor for BuiltinExecutor {
    async fn reserve(&self) -> Place {
        match Arc::clone(&self.places).acquire_owned().await {
            Ok(permit) => Place::new(permit),
            // Closed only at shutdown, when `start` refuses anyway.
            Err(_closed) => Place::unbounded(),
        }
    }

    async fn start(
        &self,
        place: Place,
        order: PhaseOrder,
        secrets: PhaseSecrets,
        sink: Arc<dyn PhaseSink>,
    ) -> Result<Running, StartError> {
        if self.closing.is_cancelled() {
            return Err(StartError::ShuttingDown);
        }
        let key = PhaseKey::of(&order);
        let hold = self.leases.hold(key.clone(), Arc::clone(&sink));
        let (process, entry, socket) = process::spawn(&self.config, &key, &self.journal)?;
        let (stop, stopped) = watch::channel(None);
        let phase = Phase {
            key: key.clone(),
            process,
            _entry: entry,
            hold,
            sink,
            stopped,
            closing: self.closing.clone(),
        };
        let delivery = relay::delivery(order, &secrets, &self.config);
        let task = self.phases.spawn(async move {
            let report = phase.run(socket, delivery, secrets.artifacts).await;
            drop(place);
            report
        });
        Ok(Running::new(key, stop, async move {
            task.await.unwrap_or_else(|panic| {
                PhaseReport::without_outcome(FailureKind::Lost, panic.to_string())
            })
        }))
    }

    async fn sweep(&self, alive: &[PhaseKey]) -> Vec<Orphan> {
        let mut orphans = self.journal.sweep(alive).await;
        // After the sessions, so that none of them still holds a sandbox.
        match self.engine().await {
            Ok(engine) => orphans.extend(engine.reap_orphans().await.into_iter().map(orphan)),
            // A machine that can build no sandbox has none to leave behind; its phases say why.
            Err(refusal) => tracing::warn!(%refusal, "cannot look for orphaned sandboxes"),
        }
        orphans
    }

    async fn isolation(&self) -> serde_json::Value {
        let checks = doctor::checks(EngineConfig::new(&self.config.machine.sandbox_dir)).await;
        let check = |check: &doctor::Check| {
            serde_json::json!({
                "name": check.name, "ok": check.ok, "seen": check.seen, "remedy": check.remedy,
            })
        };
        checks.iter().map(check).collect()
    }

    async fn shutdown(&self) {
        self.closing.cancel();
        self.places.close();
        self.phases.close();
        self.phases.wait().await;
    }
}
