//! What belongs to phases: pushes, tokens, decisions, events, artifacts (R6, R14, R15, R17; cases 16, 61, 62).

use bulkhead_model::{
    ArtifactName, Digest, Fence, GateId,
    gate::{Answer, Approver, Binding, Decision, GatePolicy, Person, Principal, Scope},
    run::{PhaseEnd, PhaseState, Refused, Run, RunEvent, Spent},
};
use bulkhead_store::{
    Error, Held,
    events::{MAX_EVENT_BYTES, NewEvent},
    pushes::{PushEnd, PushState, RecordedPush, RefUpdate},
    runs::{ApplyError, Moved},
    tokens::NewApiToken,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use crate::support::{Fixture, NOW, TTL, change, commit, under};

fn update(old: u8, new: u8) -> RefUpdate {
    RefUpdate {
        ref_name: "refs/heads/bulkhead/run".into(),
        old: Some(commit(old)),
        new: commit(new),
    }
}

#[tokio::test]
async fn r14_a_push_is_durable_before_it_is_forwarded_and_the_run_knows_it() {
    let fixture = Fixture::new().await;
    let (run, held, _) = fixture.working().await;
    let recorded = fixture
        .store
        .record_push(&held, &update(1, 2), NOW)
        .await
        .unwrap();
    let RecordedPush::New(id) = recorded else {
        panic!("{recorded:?}")
    };
    let fixture = fixture.reopen().await;
    let store = &fixture.store;
    let open = store.open_pushes(None).await.unwrap();
    assert_eq!(
        (open.len(), open[0].id, &open[0].update),
        (1, id, &update(1, 2))
    );
    let attempt = store
        .run(run.id)
        .await
        .unwrap()
        .in_flight()
        .unwrap()
        .1
        .clone();
    assert_eq!(attempt.push.unwrap().new, commit(2));

    assert_eq!(
        store.record_push(&held, &update(1, 2), NOW).await.unwrap(),
        RecordedPush::Repeat(id)
    );
    let second = store.record_push(&held, &update(2, 3), NOW).await.unwrap();
    assert_eq!(second, RecordedPush::AlreadyPushed { new: commit(2) });

    store.finish_push(id, PushEnd::Done, NOW + 1).await.unwrap();
    store.finish_push(id, PushEnd::Done, NOW + 2).await.unwrap();
    assert!(matches!(
        store.finish_push(id, PushEnd::Void, NOW).await,
        Err(Error::NotFound { .. })
    ));
    assert!(store.open_pushes(Some(run.id)).await.unwrap().is_empty());
    let push = store.push_of(&held.key).await.unwrap().unwrap();
    assert_eq!(
        (push.state, push.finished_at_ms),
        (PushState::Done, Some(NOW + 1))
    );
}

#[tokio::test]
async fn r14_a_push_that_never_landed_is_void_and_another_may_follow() {
    let fixture = Fixture::new().await;
    let (run, held, _) = fixture.working().await;
    let store = &fixture.store;
    let RecordedPush::New(id) = store.record_push(&held, &update(1, 2), NOW).await.unwrap() else {
        panic!()
    };
    store.finish_push(id, PushEnd::Void, NOW).await.unwrap();
    assert!(store.push_of(&held.key).await.unwrap().is_none());
    assert!(matches!(
        store.record_push(&held, &update(1, 3), NOW).await.unwrap(),
        RecordedPush::New(_)
    ));
    assert_eq!(store.pushes(run.id).await.unwrap().len(), 2);
}

#[tokio::test]
async fn r14_a_push_that_the_run_refuses_is_not_in_the_ledger() {
    let fixture = Fixture::new().await;
    let (run, held, lease) = fixture.working().await;
    let store = &fixture.store;
    let elsewhere = store.record_push(&held, &update(7, 8), NOW).await;
    assert!(
        matches!(
            elsewhere,
            Err(ApplyError::Refused(Refused::PushFromElsewhere { .. }))
        ),
        "{elsewhere:?}"
    );
    // A lease under a fence that the run never gave out helps nobody.
    store
        .claim_lease(&lease.resource, "thief", Fence(50), TTL, NOW)
        .await
        .unwrap();
    let stale = store
        .record_push(&under(&held, 50), &update(1, 2), NOW)
        .await;
    assert!(
        matches!(stale, Err(ApplyError::Refused(Refused::StaleFence { .. }))),
        "{stale:?}"
    );
    assert!(store.pushes(run.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn r6_a_phase_token_grants_one_branch_until_it_is_revoked() {
    let fixture = Fixture::new().await;
    let (_, held, _) = fixture.working().await;
    let store = &fixture.store;
    let token = store
        .mint_phase_token(&held, Some("refs/heads/b"), NOW)
        .await
        .unwrap();
    let other = store.mint_phase_token(&held, None, NOW).await.unwrap();
    assert_ne!(token.expose_secret(), other.expose_secret());
    assert!(token.expose_secret().len() >= 43 + 4, "256 bits");
    let grant = store.phase_grant(&token, NOW).await.unwrap().unwrap();
    assert_eq!(
        (&grant.held, grant.branch.as_deref()),
        (&held, Some("refs/heads/b"))
    );
    assert!(
        store
            .phase_grant(&SecretString::from("bhp_guess"), NOW)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        store
            .phase_grant(&token, NOW + TTL)
            .await
            .unwrap()
            .is_none(),
        "gone with the lease"
    );
    assert_eq!(store.revoke_phase_tokens(&held.key, NOW).await.unwrap(), 2);
    assert!(store.phase_grant(&token, NOW).await.unwrap().is_none());
    let database = std::fs::read(fixture.root().join("bulkhead.db-wal")).unwrap();
    let clear = token.expose_secret().as_bytes();
    assert!(
        !database.windows(clear.len()).any(|window| window == clear),
        "only the hash is kept"
    );
}

#[tokio::test]
async fn r17_callers_tokens_expire_are_revoked_and_note_their_use() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let scopes = ["read".to_owned(), "decide".to_owned()];
    let new = NewApiToken {
        name: "ada",
        scopes: &scopes,
        expires_at_ms: Some(NOW + 1000),
        now_ms: NOW,
    };
    let (id, token) = store.create_api_token(new).await.unwrap();
    let found = store.api_token(&token, NOW + 10).await.unwrap().unwrap();
    assert_eq!(
        (found.id, found.name.as_str(), found.scopes.as_slice()),
        (id, "ada", scopes.as_slice())
    );
    assert_eq!(
        store.api_tokens().await.unwrap()[0].last_used_at_ms,
        Some(NOW + 10)
    );
    assert!(
        store.api_token(&token, NOW + 1000).await.unwrap().is_none(),
        "expired"
    );
    store.revoke_api_token(id, NOW + 20).await.unwrap();
    assert!(
        store.api_token(&token, NOW + 30).await.unwrap().is_none(),
        "revoked"
    );
    assert!(
        store
            .api_token(&SecretString::from("bht_guess"), NOW)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        store.api_tokens().await.unwrap()[0].revoked_at_ms,
        Some(NOW + 20)
    );
}

/// A run whose first phase waits at its gate.
async fn at_gate(fixture: &Fixture) -> (Run, GateId) {
    let (run, held, _) = fixture.working().await;
    fixture
        .store
        .record_push(&held, &update(1, 2), NOW)
        .await
        .unwrap();
    let ended = RunEvent::PhaseEnded {
        fence: held.fence,
        result: PhaseEnd::Succeeded,
        head: Some(commit(2)),
        spent: Spent::default(),
    };
    let run = fixture.apply(run.id, &ended).await;
    let gate = run.open_gate().unwrap().1.id;
    (run, gate)
}

fn decision(gate: GateId, answer: Answer) -> RunEvent {
    let person = Principal::Person(Person {
        token: "ada".into(),
        scopes: vec![Scope::Decide],
    });
    let binding = Binding {
        commit: Some(commit(2)),
        diff: Digest::of_bytes(b"diff"),
        next: Digest::of_bytes(b"next"),
        policy: Digest::of_bytes(b"policy"),
    };
    RunEvent::Decision(Decision {
        gate,
        answer,
        by: Approver::of(&person, &GatePolicy::default()).unwrap(),
        shown: binding.clone(),
        now: binding,
    })
}

#[tokio::test]
async fn case_61_a_decision_is_kept_once_however_often_it_is_clicked_and_over_a_restart() {
    let fixture = Fixture::new().await;
    let (run, gate) = at_gate(&fixture).await;
    let approve = decision(gate, Answer::Approve);
    assert!(matches!(
        fixture.apply_at(run.id, &approve, NOW + 5).await,
        Moved::To(_)
    ));
    let fixture = fixture.reopen().await;
    assert!(matches!(
        fixture.apply_at(run.id, &approve, NOW + 6).await,
        Moved::Repeated(_)
    ));
    let reject = decision(gate, Answer::Reject);
    let contrary = fixture.store.apply(change(run.id, &reject, NOW)).await;
    assert!(
        matches!(contrary, Err(ApplyError::Refused(Refused::Answered { .. }))),
        "{contrary:?}"
    );

    let decisions = fixture.store.gate_decisions(run.id).await.unwrap();
    assert_eq!(decisions.len(), 1);
    assert_eq!(
        (decisions[0].gate, &decisions[0].answer),
        (gate, &Answer::Approve)
    );
    assert_eq!(
        (decisions[0].by.as_str(), decisions[0].at_ms),
        ("ada", NOW + 5)
    );
    assert_eq!(decisions[0].shown.commit, Some(commit(2)));
    assert_eq!(decisions[0].phase.as_str(), "plan");
    let run = fixture.store.run(run.id).await.unwrap();
    assert!(
        matches!(run.phases[1].state, PhaseState::Dispatched(_)),
        "exactly the next phase"
    );
}

fn event(n: usize) -> NewEvent {
    NewEvent {
        kind: "agent".into(),
        at_ms: NOW,
        payload: json!({ "n": n }),
    }
}

#[tokio::test]
async fn r15_events_are_numbered_without_a_gap_and_read_on_from_any_of_them() {
    let fixture = Fixture::new().await;
    let (_, held, _) = fixture.working().await;
    let store = &fixture.store;
    for batch in 0..10 {
        let events: Vec<_> = (0..7).map(|n| event(batch * 7 + n)).collect();
        assert_eq!(
            store.append_events(&held, &events, NOW).await.unwrap(),
            batch as u64 * 7 + 7
        );
    }
    let page = store.events(&held.key, 65, 3).await.unwrap();
    let seen: Vec<_> = page
        .iter()
        .map(|event| (event.seq, event.payload["n"].as_u64().unwrap()))
        .collect();
    assert_eq!(seen, [(66, 65), (67, 66), (68, 67)]);
    assert_eq!(store.events(&held.key, 70, 0).await.unwrap(), []);
    let all = store.events(&held.key, 0, 0).await.unwrap();
    assert!(all.iter().map(|event| event.seq).eq(1..=70));
}

#[tokio::test]
async fn r15_an_event_is_cut_to_its_bound_and_says_so() {
    let fixture = Fixture::new().await;
    let (_, held, _) = fixture.working().await;
    let store = &fixture.store;
    let huge = NewEvent {
        payload: json!({ "text": "ä".repeat(MAX_EVENT_BYTES), "id": "t1" }),
        ..event(0)
    };
    let many = NewEvent {
        payload: json!({ "list": vec!["x"; MAX_EVENT_BYTES] }),
        ..event(0)
    };
    store
        .append_events(&held, &[huge, many], NOW)
        .await
        .unwrap();
    let events = store.events(&held.key, 0, 0).await.unwrap();
    assert!(
        events
            .iter()
            .all(|event| event.payload.to_string().len() <= MAX_EVENT_BYTES)
    );
    let text = events[0].payload["text"].as_str().unwrap();
    assert!(
        text.ends_with("bytes cut]") && text.starts_with('ä'),
        "{}",
        &text[text.len() - 40..]
    );
    assert_eq!(events[0].payload["id"], "t1");
    assert!(events[1].payload["cut"]["bytes"].as_u64().unwrap() > MAX_EVENT_BYTES as u64);
}

#[tokio::test]
async fn r1_artifacts_are_kept_by_content_and_handed_on_by_name() {
    let fixture = Fixture::new().await;
    let (run, held, _) = fixture.working().await;
    let put = async |held: &Held, name: &str, bytes: &[u8]| {
        let mut writer = fixture.store.new_artifact(1000).await?;
        for piece in bytes.chunks(3) {
            writer.write(piece).await?;
        }
        writer.finish(held, &name.parse().unwrap(), NOW).await
    };
    let first = put(&held, "report", b"the same").await.unwrap();
    let second = put(&held, "copy", b"the same").await.unwrap();
    assert_eq!(first.path, second.path);
    assert_eq!(std::fs::read(&first.path).unwrap(), b"the same");
    put(&held, "report", b"a later attempt").await.unwrap();
    let name: ArtifactName = "report".parse().unwrap();
    let found = fixture.store.artifact(run.id, &name).await.unwrap();
    assert_eq!(std::fs::read(&found.path).unwrap(), b"a later attempt");
    assert_eq!((found.size_bytes, found.sha256.len()), (15, 64));
    assert_eq!(fixture.store.artifacts(run.id).await.unwrap().len(), 2);

    let large = put(&held, "large", &[7; 1001]).await;
    assert!(matches!(large, Err(Error::TooLarge { .. })), "{large:?}");
    let stale = put(&under(&held, 99), "stale", b"x").await;
    assert!(matches!(stale, Err(Error::Stale { .. })), "{stale:?}");
    let files: Vec<_> = std::fs::read_dir(fixture.store.dir().artifacts())
        .unwrap()
        .collect();
    assert_eq!(
        files.len(),
        2,
        "nothing is left of what was refused: {files:?}"
    );
}
