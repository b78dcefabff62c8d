//! Runs and their moves (R2, R14, D1).

use std::time::Duration;

use bulkhead_model::run::{Refused, RunEvent};
use bulkhead_store::{
    Access, Error,
    runs::{ApplyError, Created, Expected, Idempotency, Life, Move, Moved, NewRun, RunFilter},
};

use crate::support::{Fixture, NOW, change, commit, held, new, new_run, open};

#[tokio::test]
async fn r14_a_move_keeps_state_transition_and_effects_over_a_restart() {
    let fixture = Fixture::new().await;
    let run = fixture.started().await;
    let fixture = fixture.reopen().await;

    assert_eq!(fixture.store.run(run.id).await.unwrap(), run);
    let spec: String = fixture.store.run_spec(run.id).await.unwrap();
    assert_eq!(spec, "the specification");
    let moves = fixture.store.transitions(run.id, 0, 0).await.unwrap();
    let seen: Vec<_> = moves
        .iter()
        .map(|m| (m.version, m.actor.as_str()))
        .collect();
    assert_eq!(seen, [(0, "test"), (1, "test")]);
    assert!(
        moves[1].event.contains(r#""event":"start""#),
        "{}",
        moves[1].event
    );
    let pending = fixture.store.pending_effects(Some(run.id)).await.unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!(fixture.store.live_runs().await.unwrap(), [run]);
}

#[tokio::test]
async fn r2_a_refused_event_changes_nothing() {
    let fixture = Fixture::new().await;
    let run = fixture.started().await;
    let start = RunEvent::Start {
        base: Some(commit(1)),
    };
    let refused = fixture.store.apply(change(run.id, &start, NOW)).await;
    assert!(matches!(
        refused,
        Err(ApplyError::Refused(Refused::AlreadyStarted))
    ));
    assert_eq!(fixture.store.run(run.id).await.unwrap(), run);
    assert_eq!(
        fixture.store.transitions(run.id, 0, 0).await.unwrap().len(),
        2
    );
}

#[tokio::test]
async fn case_61_a_repeated_event_makes_no_second_move_and_no_second_effect() {
    let fixture = Fixture::new().await;
    let run = fixture.started().await;
    let cancel = RunEvent::Cancel { by: "ada".into() };
    assert!(matches!(
        fixture.apply_at(run.id, &cancel, NOW).await,
        Moved::To(_)
    ));
    let before = fixture.store.pending_effects(Some(run.id)).await.unwrap();
    assert!(matches!(
        fixture.apply_at(run.id, &cancel, NOW + 1).await,
        Moved::Repeated(_)
    ));
    assert_eq!(
        fixture.store.pending_effects(Some(run.id)).await.unwrap(),
        before
    );
}

#[tokio::test]
async fn d1_a_decision_on_an_older_version_is_a_conflict() {
    let fixture = Fixture::new().await;
    let run = fixture.started().await;
    let cancel = RunEvent::Cancel { by: "ada".into() };
    let late = Move {
        expected: Expected::Version(run.version - 1),
        ..change(run.id, &cancel, NOW)
    };
    let conflict = fixture.store.apply(late).await.unwrap_err();
    assert!(
        matches!(
            conflict,
            ApplyError::Store(Error::VersionConflict { found: 1, .. })
        ),
        "{conflict}"
    );
}

/// Of many who answer the same version at once, exactly one is heard, also from a second process's pools.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn d1_of_concurrent_moves_on_one_version_exactly_one_is_made() {
    let fixture = Fixture::new().await;
    let run = fixture.started().await;
    let beside = open(&fixture.dir, Access::Tool).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = if n % 2 == 0 {
            fixture.store.clone()
        } else {
            beside.clone()
        };
        let (id, version) = (run.id, run.version);
        tasks.spawn(async move {
            let event = RunEvent::Cancel {
                by: format!("caller {n}"),
            };
            let change = Move {
                expected: Expected::Version(version),
                ..change(id, &event, NOW)
            };
            store.apply(change).await.is_ok()
        });
    }
    let made = tasks
        .join_all()
        .await
        .into_iter()
        .filter(|made| *made)
        .count();
    assert_eq!(made, 1);
    assert_eq!(
        fixture.store.transitions(run.id, 0, 0).await.unwrap().len(),
        3
    );
}

#[tokio::test]
async fn r18_the_same_request_twice_makes_one_run_and_another_under_its_key_is_an_error() {
    let fixture = Fixture::new().await;
    let (first, second) = (new_run(&["plan"]), new_run(&["plan"]));
    let request = |run, request_hash| NewRun {
        idempotency: Some(Idempotency {
            key: "k1",
            request_hash,
        }),
        ..new(run)
    };
    let made = fixture
        .store
        .create_run(request(&first, "h1"))
        .await
        .unwrap();
    assert_eq!(made, Created::New(first.id));
    let again = fixture
        .store
        .create_run(request(&second, "h1"))
        .await
        .unwrap();
    assert_eq!(again, Created::Before(first.id));
    let other = fixture.store.create_run(request(&second, "h2")).await;
    assert!(matches!(other, Err(Error::KeyReused { .. })));
    assert_eq!(
        fixture
            .store
            .runs(&RunFilter::default())
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn r2_runs_are_listed_newest_first_in_pages_and_by_life() {
    let fixture = Fixture::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let run = new_run(&["plan"]);
        let made = NewRun {
            now_ms: NOW + n,
            ..new(&run)
        };
        fixture.store.create_run(made).await.unwrap();
        ids.insert(0, run.id);
    }
    fixture
        .apply(ids[0], &RunEvent::Cancel { by: "ada".into() })
        .await;
    let page = |before, only| RunFilter {
        before,
        only,
        limit: 2,
        ..RunFilter::default()
    };
    let list = async |filter: RunFilter| -> Vec<_> {
        fixture
            .store
            .runs(&filter)
            .await
            .unwrap()
            .into_iter()
            .map(|run| run.id)
            .collect()
    };
    assert_eq!(list(page(None, None)).await, ids[0..2]);
    assert_eq!(list(page(Some(ids[1]), None)).await, ids[2..4]);
    assert_eq!(list(page(None, Some(Life::Ended))).await, ids[0..1]);
    assert_eq!(list(page(None, Some(Life::Live))).await, ids[1..3]);
    let cancelled = RunFilter {
        status: Some("cancelled".into()),
        ..RunFilter::default()
    };
    assert_eq!(list(cancelled).await, ids[0..1]);
}

#[tokio::test]
async fn d12_a_reader_is_not_held_up_by_a_writer_and_commits_ring() {
    let fixture = Fixture::new().await;
    let mut changes = fixture.store.changes();
    let run = fixture.started().await;
    tokio::time::timeout(Duration::from_secs(20), changes.changed())
        .await
        .unwrap()
        .unwrap();
    tokio::time::timeout(Duration::from_secs(20), fixture.store.outbox_rung())
        .await
        .unwrap();
    assert_eq!(held(&run).key.attempt, 1);
}
