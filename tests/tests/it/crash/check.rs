//! What must be true after any crash.

use std::{collections::BTreeMap, path::Path};

use bulkhead_model::run::{PhaseState, Run, Status};
use bulkhead_server::RunView;
use bulkhead_store::{
    Access, MasterKey, PhaseKey, Store,
    logs::{Body, LocalLogs, LogStore as _},
};

use crate::repo;

const PHASES: [&str; 3] = ["plan", "build", "test"];

/// Whether phases may have parked on the way, which takes a decision more each time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parked {
    Never,
    May,
}

pub(super) fn right_end(root: &Path, after: &str) {
    right_end_with(root, after, Parked::Never);
}

pub(super) fn right_end_with(root: &Path, after: &str, parked: Parked) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(check(root, after, parked));
}

async fn check(root: &Path, after: &str, parked: Parked) {
    let end: RunView = serde_json::from_slice(&std::fs::read(root.join("end")).unwrap()).unwrap();
    let store = Store::open(&root.join("data"), Access::Server, MasterKey::File)
        .await
        .unwrap();
    let run = store.run(end.id.parse().unwrap()).await.unwrap();
    one_completed_run(&store, &run, after).await;
    commits_once_in_order(root, &run, after);
    nothing_is_left_to_do(&store, &run, after).await;
    what_was_acknowledged_is_there_once(root, &store, &run, after).await;
    if parked == Parked::Never {
        let decisions = store.gate_decisions(run.id).await.unwrap();
        assert_eq!(decisions.len(), 2, "after {after}: {decisions:?}");
    }
    store.close().await;
}

async fn one_completed_run(store: &Store, run: &Run, after: &str) {
    let runs = store.runs(&Default::default()).await.unwrap();
    assert_eq!(runs.len(), 1, "after {after}: one request, one run");
    assert!(
        matches!(&run.status, Status::Ended { end } if end.to_string() == "completed"),
        "after {after}: {:?}",
        run.status
    );
}

/// Each phase's commit exactly once, in order, and the run knows them by their names.
fn commits_once_in_order(root: &Path, run: &Run, after: &str) {
    let repository = root.join("repo");
    let subjects = repo::subjects(&repository, "bulkhead/crash");
    let expected = PHASES.map(|phase| format!("Crash: {phase}"));
    assert_eq!(subjects, expected, "after {after}: the branch's commits");
    let log = repo::git(
        &repository,
        &["log", "--reverse", "--format=%H", "main..bulkhead/crash"],
    );
    for (phase, commit) in run.phases.iter().zip(log.lines()) {
        let PhaseState::Done {
            commit: Some(known),
            ..
        } = &phase.state
        else {
            panic!("after {after}: a phase is {:?}", phase.state);
        };
        assert_eq!(known.as_str(), commit, "after {after}");
    }
    repo::git(&repository, &["fsck", "--strict"]);
}

async fn nothing_is_left_to_do(store: &Store, run: &Run, after: &str) {
    let pending = store.pending_effects(None).await.unwrap();
    assert!(pending.is_empty(), "after {after}: {pending:?}");
    let open = store.open_pushes(None).await.unwrap();
    assert!(open.is_empty(), "after {after}: {open:?}");
    let pushes = store.pushes(run.id).await.unwrap();
    let done = pushes
        .iter()
        .filter(|push| push.state == bulkhead_store::pushes::PushState::Done);
    assert_eq!(
        done.count(),
        PHASES.len(),
        "after {after}: one push completes a phase"
    );
}

/// No acknowledged line or decision is lost, and none is there twice.
async fn what_was_acknowledged_is_there_once(root: &Path, store: &Store, run: &Run, after: &str) {
    let mut said: BTreeMap<PhaseKey, Vec<String>> = BTreeMap::new();
    for line in lines(&root.join("said")) {
        let mut parts = line.splitn(3, '\t');
        let phase = parts.next().unwrap().parse().unwrap();
        let attempt = parts.next().unwrap().parse().unwrap();
        let key = PhaseKey {
            run: run.id,
            phase,
            attempt,
        };
        said.entry(key)
            .or_default()
            .push(parts.next().unwrap().to_owned());
    }
    for (key, lines) in said {
        let events = store.events(&key, 0, 1000).await.unwrap();
        let sequence: Vec<u64> = events.iter().map(|event| event.seq).collect();
        let whole: Vec<u64> = (1..=events.len() as u64).collect();
        assert_eq!(sequence, whole, "after {after}: {key} has a gap");
        let log = log_of(root, &key).await;
        for line in lines {
            assert_eq!(
                log.matches(&format!("{line}\n")).count(),
                1,
                "after {after}: the log of {key}: {log:?}"
            );
            let found = events
                .iter()
                .filter(|event| event.payload.to_string().contains(&line));
            assert_eq!(found.count(), 1, "after {after}: {key} said {line:?}");
        }
    }
    let decisions = store.gate_decisions(run.id).await.unwrap();
    for gate in lines(&root.join("decided")) {
        let found = decisions
            .iter()
            .filter(|decision| decision.gate.to_string() == gate);
        assert_eq!(found.count(), 1, "after {after}: the decision at {gate}");
    }
}

async fn log_of(root: &Path, key: &PhaseKey) -> String {
    let logs = LocalLogs::new(root.join("data/logs"));
    let page = logs.read(key, 1, 1 << 20).await.unwrap();
    let sequence: Vec<u64> = page.entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(
        sequence,
        (1..page.next_seq).collect::<Vec<_>>(),
        "{key} has a gap"
    );
    let output = page
        .entries
        .into_iter()
        .filter_map(|entry| match entry.body {
            Body::Output(bytes) => Some(String::from_utf8(bytes.to_vec()).unwrap()),
            Body::Marker(_) => None,
        });
    output.collect()
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
