//! Leases with fencing (D2).

use bulkhead_model::{
    Fence,
    lease::{Lease, LeaseRefused},
};
use proptest::prelude::*;

fn held() -> Lease {
    Lease::claim(None, "a", Fence(1), 0, 100).unwrap()
}

#[test]
fn d2_only_the_holder_renews_and_only_in_time() {
    let lease = held();
    let renewed = lease.renew("a", Fence(1), 50, 100).unwrap();
    assert_eq!(renewed.expires_ms, 150);
    assert!(matches!(
        lease.renew("b", Fence(1), 50, 100),
        Err(LeaseRefused::Claimed { .. })
    ));
    assert!(matches!(
        lease.renew("a", Fence(2), 50, 100),
        Err(LeaseRefused::Stale { .. })
    ));
    assert_eq!(
        lease.renew("a", Fence(1), 103, 100),
        Err(LeaseRefused::Expired {
            fence: Fence(1),
            late_ms: 3
        })
    );
}

#[test]
fn d2_a_clock_that_runs_back_never_shortens_a_lease() {
    let lease = held().renew("a", Fence(1), -500, 100).unwrap();
    assert_eq!(lease.expires_ms, 100);
}

#[test]
fn r14_a_claim_whose_answer_was_lost_can_be_repeated_by_the_same_holder_only() {
    let lease = held();
    let again = Lease::claim(Some(&lease), "a", Fence(1), 10, 100).unwrap();
    assert_eq!(again, lease);
    assert!(matches!(
        Lease::claim(Some(&lease), "b", Fence(1), 10, 100),
        Err(LeaseRefused::Claimed { .. })
    ));
    // Not even after it expired: two holders would show the same fence.
    assert!(Lease::claim(Some(&lease), "b", Fence(1), 1_000, 100).is_err());
}

#[test]
fn d2_a_greater_fence_takes_over_and_the_old_holder_is_stale() {
    let taken = Lease::claim(Some(&held()), "b", Fence(2), 10, 100).unwrap();
    assert_eq!(taken.holder, "b");
    assert!(matches!(
        taken.renew("a", Fence(1), 20, 100),
        Err(LeaseRefused::Stale { .. })
    ));
    assert!(matches!(
        Lease::claim(Some(&taken), "a", Fence(1), 20, 100),
        Err(LeaseRefused::Stale { .. })
    ));
}

#[test]
fn d2_a_lease_given_back_is_over_and_its_fence_stays_the_floor() {
    let lease = held().release("a", Fence(1), 10).unwrap();
    assert!(!lease.is_live(11) && !lease.is_expired(1_000));
    assert_eq!(lease.release("a", Fence(1), 11).unwrap(), lease);
    assert!(lease.renew("a", Fence(1), 11, 100).is_err());
    assert!(Lease::claim(Some(&lease), "b", Fence(1), 12, 100).is_err());
    assert!(Lease::claim(Some(&lease), "b", Fence(2), 12, 100).is_ok());
}

proptest! {
    #[test]
    fn d2_at_any_time_at_most_one_holder_can_renew(
        steps in prop::collection::vec((0..3_usize, 0..3_u8, 0..6_u64, 0..80_i64), 1..60),
    ) {
        let holders = ["a", "b", "c"];
        let (mut lease, mut now, mut highest): (Option<Lease>, i64, u64) = (None, 0, 0);
        for (holder, what, fence, passed) in steps {
            now += passed;
            let (holder, fence) = (holders[holder], Fence(fence));
            let next = match (&lease, what) {
                (_, 0) => Lease::claim(lease.as_ref(), holder, fence, now, 100),
                (Some(lease), 1) => lease.renew(holder, fence, now, 100),
                (Some(lease), _) => lease.release(holder, fence, now),
                _ => continue,
            };
            if let Ok(next) = next {
                prop_assert!(next.fence.0 >= highest, "a fence went back");
                highest = next.fence.0;
                lease = Some(next);
            }
            if let Some(lease) = &lease {
                let able = holders.iter().flat_map(|holder| (0..6).map(move |f| (*holder, Fence(f))))
                    .filter(|(holder, fence)| lease.renew(holder, *fence, now, 100).is_ok());
                prop_assert_eq!(able.count(), usize::from(lease.is_live(now)));
            }
        }
    }
}
