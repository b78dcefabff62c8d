//! The outbox (D1, R14): at least once, in order, one worker at a time.

use bulkhead_model::run::{Action, RunEvent};
use bulkhead_store::{Error, outbox::Claimed};

use crate::support::{Fixture, NOW};

const HOLD: i64 = 10_000;

async fn claim(fixture: &Fixture, now_ms: i64) -> Vec<Claimed> {
    fixture.store.claim_effects(10, HOLD, now_ms).await.unwrap()
}

#[tokio::test]
async fn d1_an_effect_is_claimed_once_and_done_for_ever() {
    let fixture = Fixture::new().await;
    let run = fixture.started().await;
    let claimed = claim(&fixture, NOW).await;
    assert_eq!(claimed.len(), 1);
    assert!(matches!(claimed[0].effect.action, Action::Dispatch { .. }));
    assert_eq!(claimed[0].effect.id.run, run.id);
    assert!(claim(&fixture, NOW).await.is_empty(), "claimed twice");
    fixture.store.ack_effect(&claimed[0], NOW).await.unwrap();
    assert!(
        claim(&fixture, NOW + 100 * HOLD).await.is_empty(),
        "done twice"
    );
    assert_eq!(fixture.store.next_effect_due_ms().await.unwrap(), None);
}

#[tokio::test]
async fn r14_an_effect_whose_worker_died_comes_again_and_the_dead_workers_word_is_void() {
    let fixture = Fixture::new().await;
    fixture.started().await;
    let first = claim(&fixture, NOW).await.remove(0);
    assert_eq!(
        fixture.store.next_effect_due_ms().await.unwrap(),
        Some(NOW + HOLD)
    );
    let second = claim(&fixture, NOW + HOLD).await.remove(0);
    assert_eq!((second.effect.id, second.attempts), (first.effect.id, 2));
    let late = fixture.store.ack_effect(&first, NOW + HOLD).await;
    assert!(matches!(late, Err(Error::ClaimLost { .. })));
    fixture.store.ack_effect(&second, NOW + HOLD).await.unwrap();
}

#[tokio::test]
async fn r14_after_a_restart_claims_are_freed_at_once() {
    let fixture = Fixture::new().await;
    fixture.started().await;
    let first = claim(&fixture, NOW).await.remove(0);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.store.free_claims().await.unwrap(), 1);
    let again = claim(&fixture, NOW).await.remove(0);
    assert_eq!(again.effect, first.effect);
}

#[tokio::test]
async fn d1_a_failed_effect_comes_again_after_a_growing_pause_and_is_never_lost() {
    let fixture = Fixture::new().await;
    let run = fixture.started().await;
    let (mut now, mut pauses) = (NOW, Vec::new());
    for _ in 0..12 {
        let effect = claim(&fixture, now).await.remove(0);
        let next = fixture
            .store
            .fail_effect(&effect, "no route", now)
            .await
            .unwrap();
        assert!(claim(&fixture, next - 1).await.is_empty());
        assert_eq!(
            fixture.store.next_effect_due_ms().await.unwrap(),
            Some(next)
        );
        pauses.push(next - now);
        now = next;
    }
    assert!(
        pauses.is_sorted() && pauses[0] == 250 && pauses[11] == 60_000,
        "{pauses:?}"
    );
    let pending = fixture.store.pending_effects(Some(run.id)).await.unwrap();
    assert_eq!(pending[0].last_error.as_deref(), Some("no route"));
}

#[tokio::test]
async fn d1_the_effects_of_one_run_are_performed_in_their_order() {
    let fixture = Fixture::new().await;
    let (one, _, _) = fixture.working().await;
    let other = fixture.started().await;
    fixture
        .apply(one.id, &RunEvent::Cancel { by: "ada".into() })
        .await;

    let due = claim(&fixture, NOW).await;
    let of = |claimed: &[Claimed]| -> Vec<_> {
        claimed
            .iter()
            .map(|claimed| (claimed.effect.id.run, claimed.effect.id.version))
            .collect()
    };
    assert_eq!(
        of(&due),
        [(one.id, 1), (other.id, 1)],
        "one effect of each run"
    );
    fixture.store.ack_effect(&due[0], NOW).await.unwrap();
    let next = claim(&fixture, NOW).await;
    assert_eq!(next.len(), 1);
    assert!(
        matches!(next[0].effect.action, Action::StopPhase { .. }),
        "{next:?}"
    );
}

#[tokio::test]
async fn d1_an_effect_that_is_given_up_lets_the_next_pass_and_stays_visible() {
    let fixture = Fixture::new().await;
    let (run, _, _) = fixture.working().await;
    fixture
        .apply(run.id, &RunEvent::Cancel { by: "ada".into() })
        .await;
    let first = claim(&fixture, NOW).await.remove(0);
    fixture
        .store
        .give_up_effect(&first, "can never work", NOW)
        .await
        .unwrap();
    assert_eq!(claim(&fixture, NOW).await.len(), 1);
    let pending = fixture.store.pending_effects(Some(run.id)).await.unwrap();
    assert_eq!(pending[0].given_up_at_ms, Some(NOW));
    assert_eq!(pending[0].last_error.as_deref(), Some("can never work"));
}

#[tokio::test]
async fn d1_a_long_effect_keeps_its_claim_while_it_is_lengthened() {
    let fixture = Fixture::new().await;
    fixture.started().await;
    let effect = claim(&fixture, NOW).await.remove(0);
    fixture
        .store
        .extend_claim(&effect, HOLD, NOW + HOLD - 1)
        .await
        .unwrap();
    assert!(claim(&fixture, NOW + HOLD).await.is_empty());
}
