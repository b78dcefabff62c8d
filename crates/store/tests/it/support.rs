//! A store in a directory of its own, and runs in the states that tests need.

use bulkhead_model::{
    CommitId, Fence, PhaseName, RunId,
    gate::{GatePolicy, OnSuccess},
    run::{Attempt, PhasePlan, Plan, Repository, Run, RunCaps, RunEvent},
};
use bulkhead_store::{
    Access, Held, MasterKey, PhaseKey, Store,
    leases::{Lease, Resource},
    runs::{Expected, Move, Moved, NewRun},
};
use tempfile::TempDir;
use uuid::Uuid;

/// The time at which tests happen, unless they say otherwise.
pub(crate) const NOW: i64 = 1_800_000_000_000;
pub(crate) const TTL: i64 = 30_000;

pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) dir: TempDir,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir, Access::Server).await;
        Self { store, dir }
    }

    pub(crate) fn root(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    /// Ends the store and opens it again, as a restart does.
    pub(crate) async fn reopen(self) -> Self {
        let Self { store, dir } = self;
        store.close().await;
        drop(store);
        let store = open(&dir, Access::Server).await;
        Self { store, dir }
    }

    /// A run that has started: its first phase is dispatched.
    pub(crate) async fn started(&self) -> Run {
        let run = new_run(&["plan", "implement"]);
        self.create(&run).await;
        self.apply(
            run.id,
            &RunEvent::Start {
                base: Some(commit(1)),
            },
        )
        .await
    }

    /// A run whose first phase is claimed, with its lease.
    pub(crate) async fn working(&self) -> (Run, Held, Lease) {
        let run = self.started().await;
        let held = held(&run);
        let lease = self
            .store
            .claim_lease(&Resource::run(run.id), "server", held.fence, TTL, NOW)
            .await
            .unwrap();
        let run = self
            .apply(run.id, &RunEvent::Claimed { fence: held.fence })
            .await;
        (run, held, lease)
    }

    pub(crate) async fn create(&self, run: &Run) {
        self.store.create_run(new(run)).await.unwrap();
    }

    pub(crate) async fn apply(&self, run: RunId, event: &RunEvent) -> Run {
        self.apply_at(run, event, NOW).await.into_run()
    }

    pub(crate) async fn apply_at(&self, run: RunId, event: &RunEvent, now_ms: i64) -> Moved {
        self.store.apply(change(run, event, now_ms)).await.unwrap()
    }
}

pub(crate) async fn open(dir: &TempDir, access: Access) -> Store {
    Store::open(&dir.path().join("data"), access, MasterKey::File)
        .await
        .unwrap()
}

pub(crate) fn change(run: RunId, event: &RunEvent, now_ms: i64) -> Move<'_> {
    Move {
        run,
        expected: Expected::Current,
        event,
        actor: "test",
        now_ms,
    }
}

pub(crate) fn new(run: &Run) -> NewRun<'_, &'static str> {
    NewRun {
        name: "sample",
        spec: &"the specification",
        run,
        idempotency: None,
        actor: "test",
        now_ms: NOW,
    }
}

pub(crate) fn new_run(phases: &[&str]) -> Run {
    let phases = phases.iter().map(|name| PhasePlan {
        name: name.parse().unwrap(),
        gate: GatePolicy {
            on_success: OnSuccess::Review,
            ..GatePolicy::default()
        },
        retries: 0,
    });
    let plan = Plan::new(phases.collect(), Repository::Branch, RunCaps::default()).unwrap();
    Run::new(RunId::from_uuid(Uuid::now_v7()), plan)
}

/// Commit number `n`.
pub(crate) fn commit(n: u8) -> CommitId {
    format!("{n:040x}").parse().unwrap()
}

/// Who works on the phase that is in flight.
pub(crate) fn held(run: &Run) -> Held {
    let (index, attempt) = run.in_flight().unwrap();
    held_for(run, index, attempt)
}

fn held_for(run: &Run, index: usize, attempt: &Attempt) -> Held {
    Held {
        key: PhaseKey {
            run: run.id,
            phase: run.plan.phases()[index].name.clone(),
            attempt: attempt.attempt,
        },
        fence: attempt.fence,
    }
}

/// The same holder under another fence.
pub(crate) fn under(held: &Held, fence: u64) -> Held {
    Held {
        fence: Fence(fence),
        ..held.clone()
    }
}

pub(crate) fn phase(name: &str) -> PhaseName {
    name.parse().unwrap()
}
