//! The lease keeper (D2, case 1).

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_model::{Fence, RunId};
use bulkhead_runner::{LeaseKeeper, PhaseKey};

use crate::sink::{FakeSink, TTL};

fn key(fence: u64) -> PhaseKey {
    PhaseKey {
        run: RunId::from_uuid(uuid::Uuid::now_v7()),
        phase: "build".parse().unwrap(),
        attempt: 1,
        fence: Fence(fence),
    }
}

/// Case 1: workers that never yield do not starve the renewal.
#[tokio::test(flavor = "current_thread")]
async fn case_1_a_busy_worker_does_not_starve_the_lease() {
    let keeper = LeaseKeeper::start().unwrap();
    let sink = Arc::new(FakeSink::default());
    let hold = keeper.hold(key(1), Arc::clone(&sink) as _);
    let until = Instant::now() + 4 * TTL;
    // This is the test's only runtime thread, and it is busy for four leases.
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    assert!(sink.renewals.load(Ordering::SeqCst) >= 4);
    let lost = tokio::time::timeout(Duration::from_millis(20), hold.lost()).await;
    assert!(lost.is_err(), "the lease must still be held");
}

/// D2: a holder whose fence is stale hears of it.
#[tokio::test]
async fn d2_a_refused_renewal_loses_the_lease() {
    let keeper = LeaseKeeper::start().unwrap();
    let sink = Arc::new(FakeSink::default());
    sink.stale.store(true, Ordering::SeqCst);
    let hold = keeper.hold(key(1), sink);
    tokio::time::timeout(10 * TTL, hold.lost()).await.unwrap();
}

/// D2: a holder that cannot renew gives up by its own clock, whether the server errs or is silent.
#[tokio::test]
async fn d2_a_lease_that_cannot_be_renewed_is_lost_in_time() {
    for (failing, hanging) in [(true, false), (false, true)] {
        let keeper = LeaseKeeper::start().unwrap();
        let sink = Arc::new(FakeSink::default());
        sink.failing.store(failing, Ordering::SeqCst);
        sink.hanging.store(hanging, Ordering::SeqCst);
        let asked = sink.asked;
        let hold = keeper.hold(key(1), sink);
        tokio::time::timeout(20 * TTL, hold.lost()).await.unwrap();
        assert!(asked.elapsed() >= TTL, "given up before the lease ran out");
    }
}

/// D2: a lease that ran out while the process was stopped is lost, and never renewed late.
#[tokio::test]
async fn d2_a_lease_found_expired_is_not_renewed() {
    let keeper = LeaseKeeper::start().unwrap();
    let sink = Arc::new(FakeSink {
        asked: Instant::now().checked_sub(2 * TTL).unwrap(),
        ..FakeSink::default()
    });
    let hold = keeper.hold(key(1), Arc::clone(&sink) as _);
    tokio::time::timeout(10 * TTL, hold.lost()).await.unwrap();
    assert_eq!(sink.renewals.load(Ordering::SeqCst), 0);
}

/// One lease whose store is silent does not cost its neighbour the lease.
#[tokio::test]
async fn d2_a_hanging_renewal_does_not_hold_up_another() {
    let keeper = LeaseKeeper::start().unwrap();
    let hanging = Arc::new(FakeSink::default());
    hanging.hanging.store(true, Ordering::SeqCst);
    let healthy = Arc::new(FakeSink::default());
    let _doomed = keeper.hold(key(1), hanging);
    let hold = keeper.hold(key(2), Arc::clone(&healthy) as _);
    thread::sleep(4 * TTL);
    let lost = tokio::time::timeout(Duration::from_millis(20), hold.lost()).await;
    assert!(lost.is_err(), "the neighbour must still be held");
    assert!(healthy.renewals.load(Ordering::SeqCst) >= 4);
}

/// A lease that was let go is not renewed any more.
#[tokio::test]
async fn d2_letting_go_ends_the_renewals() {
    let keeper = LeaseKeeper::start().unwrap();
    let sink = Arc::new(FakeSink::default());
    drop(keeper.hold(key(1), Arc::clone(&sink) as _));
    thread::sleep(2 * TTL);
    assert_eq!(sink.renewals.load(Ordering::SeqCst), 0);
}
