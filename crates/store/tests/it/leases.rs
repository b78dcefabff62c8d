//! Leases and fences (D2, R13, R14): a stale holder is refused everywhere.

use bulkhead_model::{Fence, RunId, lease};
use bulkhead_store::{Error, leases::Resource, runs::ApplyError};
use proptest::prelude::*;
use uuid::Uuid;

use crate::support::{Fixture, NOW, TTL};

fn stale<T: std::fmt::Debug>(answer: Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Stale { .. }))
}

#[tokio::test]
async fn d2_a_greater_fence_takes_over_and_the_old_holder_is_refused() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let resource = Resource::run(RunId::from_uuid(Uuid::now_v7()));
    let old = store
        .claim_lease(&resource, "a", Fence(1), TTL, NOW)
        .await
        .unwrap();
    let again = store
        .claim_lease(&resource, "a", Fence(1), TTL, NOW + 5)
        .await
        .unwrap();
    assert_eq!(again, old, "a repeated claim is the same lease");
    assert!(stale(
        store.claim_lease(&resource, "b", Fence(1), TTL, NOW).await
    ));
    let new = store
        .claim_lease(&resource, "b", Fence(2), TTL, NOW)
        .await
        .unwrap();
    assert!(stale(store.renew_lease(&old, TTL, NOW).await));
    assert!(stale(
        store.claim_lease(&resource, "a", Fence(1), TTL, NOW).await
    ));
    assert!(stale(store.check_fence(&resource, Fence(1), NOW).await));
    store.release_lease(&old).await.unwrap();
    store.check_fence(&resource, Fence(2), NOW).await.unwrap();
    store.release_lease(&new).await.unwrap();
    assert!(stale(store.check_fence(&resource, Fence(2), NOW).await));
    assert!(stale(
        store.claim_lease(&resource, "b", Fence(2), TTL, NOW).await
    ));
}

#[tokio::test]
async fn d2_a_lease_that_ran_out_is_found_and_never_renewed() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let resource = Resource::named("n");
    let lease = store
        .claim_lease(&resource, "a", Fence(7), TTL, NOW)
        .await
        .unwrap();
    let lease = store.renew_lease(&lease, TTL, NOW + 10).await.unwrap();
    let end = lease.expires_at_ms;
    assert_eq!(end, NOW + 10 + TTL);
    assert!(store.expired_leases(end - 1).await.unwrap().is_empty());
    assert_eq!(
        store.expired_leases(end).await.unwrap(),
        std::slice::from_ref(&lease)
    );
    assert!(stale(store.renew_lease(&lease, TTL, end).await));
    assert!(stale(store.check_fence(&resource, Fence(7), end).await));
    assert_eq!(store.expire_leases_of("a").await.unwrap(), 1);
    assert!(
        store.expired_leases(end).await.unwrap().is_empty(),
        "said once"
    );
}

/// What a test does to a lease.
#[derive(Debug, Clone)]
enum Op {
    Claim(u8, u64, i64),
    Renew(i64),
    Release,
    Wait(i64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0_u8..3, 1_u64..6, 0_i64..30).prop_map(|(who, fence, ttl)| Op::Claim(who, fence, ttl)),
        (0_i64..30).prop_map(Op::Renew),
        Just(Op::Release),
        (0_i64..20).prop_map(Op::Wait),
    ];
    prop::collection::vec(op, 1..40)
}

/// The statements follow the pure rules of `bulkhead_model::lease`, for any history.
#[test]
fn d2_leases_in_sql_follow_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fixture = runtime.block_on(Fixture::new());
    let config = ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(ops in ops())| runtime.block_on(follow(&fixture, ops)));
}

async fn follow(fixture: &Fixture, ops: Vec<Op>) {
    let store = &fixture.store;
    let resource = Resource::named(&Uuid::now_v7().to_string());
    let (mut model, mut mine, mut now) = (None::<lease::Lease>, None, NOW);
    for op in ops {
        match op {
            Op::Wait(ms) => now += ms,
            Op::Claim(who, fence, ttl) => {
                let holder = format!("h{who}");
                let said = lease::Lease::claim(model.as_ref(), &holder, Fence(fence), now, ttl);
                let got = store
                    .claim_lease(&resource, &holder, Fence(fence), ttl, now)
                    .await;
                assert_eq!(said.is_ok(), got.is_ok(), "claim: {said:?} {got:?}");
                if let (Ok(said), Ok(got)) = (said, got) {
                    assert_eq!(said.expires_ms, got.expires_at_ms);
                    (model, mine) = (Some(said), Some(got));
                }
            }
            Op::Renew(ttl) => {
                let (Some(lease), Some(held)) = (&model, &mine) else {
                    continue;
                };
                let said = lease.renew(&held.holder, held.fence, now, ttl);
                let got = store.renew_lease(held, ttl, now).await;
                assert_eq!(said.is_ok(), got.is_ok(), "renew: {said:?} {got:?}");
                if let (Ok(said), Ok(got)) = (said, got) {
                    assert_eq!(said.expires_ms, got.expires_at_ms);
                    (model, mine) = (Some(said), Some(got));
                }
            }
            Op::Release => {
                let (Some(lease), Some(held)) = (&model, &mine) else {
                    continue;
                };
                if let Ok(released) = lease.release(&held.holder, held.fence, now) {
                    store.release_lease(held).await.unwrap();
                    model = Some(released);
                }
            }
        }
        if let Some(lease) = &model {
            let live = store.check_fence(&resource, lease.fence, now).await.is_ok();
            assert_eq!(live, lease.is_live(now));
        }
    }
}

#[tokio::test]
async fn d2_a_stale_holder_is_refused_by_push_token_and_event_alike() {
    let fixture = Fixture::new().await;
    let (_, held, lease) = fixture.working().await;
    let store = &fixture.store;
    let token = store
        .mint_phase_token(&held, Some("refs/heads/b"), NOW)
        .await
        .unwrap();
    assert!(store.phase_grant(&token, NOW).await.unwrap().is_some());
    let update = bulkhead_store::pushes::RefUpdate {
        ref_name: "refs/heads/b".into(),
        old: Some(crate::support::commit(1)),
        new: crate::support::commit(2),
    };
    // Both kinds of stale: its time ran out; another took over.
    let taken_over = store
        .claim_lease(&lease.resource, "other", Fence(held.fence.0 + 1), TTL, NOW)
        .await
        .unwrap();
    for (held, now) in [
        (held.clone(), NOW),
        (crate::support::under(&held, taken_over.fence.0), NOW + TTL),
    ] {
        let pushed = store.record_push(&held, &update, now).await;
        assert!(
            matches!(pushed, Err(ApplyError::Store(Error::Stale { .. }))),
            "{pushed:?}"
        );
        assert!(stale(store.mint_phase_token(&held, None, now).await));
        assert!(stale(store.append_events(&held, &[], now).await));
        assert!(store.phase_grant(&token, now).await.unwrap().is_none());
    }
}
