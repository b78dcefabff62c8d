//! What a crash, a lost lease or a second worker may do to a run (R13, R14, D2).

use bulkhead_model::{
    gate::OnSuccess,
    run::{
        Action, End, Failure, GateWhy, PhaseEnd, PhaseState, Refused, Repository, RunCaps,
        RunEvent, step,
    },
};

use crate::run_support::{Driver, TURN, commit, ended, fence, fresh, new_run, pushed, reviewed};

#[test]
fn r13_a_lost_lease_parks_the_phase() {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    let fence = fence(&driver.run);
    driver.apply(&RunEvent::LeaseLost {
        fence,
        head: Some(commit(1)),
        spent: TURN,
    });
    let why = &driver.run.open_gate().unwrap().1.why;
    assert!(matches!(
        why,
        GateWhy::Parked {
            failure: Failure::Lost
        }
    ));
}

#[test]
fn r14_a_restart_dispatches_again_from_the_branch_with_a_new_fence() {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    let old = fence(&driver.run);
    let head = Some(commit(5));
    let actions = driver.apply(&RunEvent::Restarted {
        fence: old,
        head: head.clone(),
    });
    let [
        Action::StopPhase { fence: stopped, .. },
        Action::Dispatch {
            fence,
            attempt,
            start,
            ..
        },
    ] = &actions[..]
    else {
        panic!("not a stop and a dispatch: {actions:?}");
    };
    assert_eq!((*stopped, *attempt, start), (old, 2, &head));
    assert!(*fence > old);
    // What the lost session still says counts for nothing.
    let late = RunEvent::Pushed {
        fence: old,
        old: head,
        new: commit(6),
    };
    assert!(matches!(driver.refused(&late), Refused::StaleFence { .. }));
}

#[test]
fn r14_a_push_that_landed_before_the_crash_completes_the_phase() {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    driver.apply(&pushed(&driver.run));
    let (fence, head) = (fence(&driver.run), fresh(&driver.run));
    let confirmed = RunEvent::PushConfirmed {
        fence,
        head,
        spent: TURN,
    };
    driver.apply(&confirmed);
    assert!(matches!(
        driver.run.open_gate().unwrap().1.why,
        GateWhy::Review
    ));
    assert_eq!(driver.dispatches(), 1);
    assert!(matches!(
        driver.refused(&confirmed),
        Refused::StaleFence { .. }
    ));
}

#[test]
fn r14_a_push_that_was_not_recorded_confirms_nothing() {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    let confirm = RunEvent::PushConfirmed {
        fence: fence(&driver.run),
        head: fresh(&driver.run),
        spent: TURN,
    };
    assert!(matches!(
        driver.refused(&confirm),
        Refused::NoSuchPush { .. }
    ));
}

#[test]
fn r14_success_without_its_recorded_push_is_not_done() {
    for head in [None, Some(commit(44)), Some(commit(1))] {
        let mut driver = Driver::started(reviewed(1));
        driver.claim();
        driver.apply(&pushed(&driver.run));
        driver.apply(&ended(&driver.run, PhaseEnd::Succeeded, head));
        let why = &driver.run.open_gate().unwrap().1.why;
        let undelivered = Failure::NotDelivered {
            recorded: Some(fresh(&driver.run)),
            found: None,
        };
        assert!(
            matches!(why, GateWhy::Parked { failure }
                if std::mem::discriminant(failure) == std::mem::discriminant(&undelivered)),
            "{why:?}"
        );
    }
}

#[test]
fn r14_a_branch_that_moved_without_a_record_is_not_done() {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    let moved = Some(commit(44));
    driver.apply(&ended(&driver.run, PhaseEnd::Succeeded, moved));
    let why = &driver.run.open_gate().unwrap().1.why;
    assert!(matches!(
        why,
        GateWhy::Parked {
            failure: Failure::NotDelivered { .. }
        }
    ));
}

#[test]
fn r14_the_same_push_may_be_recorded_again_and_one_from_elsewhere_may_not() {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    let push = pushed(&driver.run);
    driver.apply(&push);
    let version = driver.run.version;
    driver.apply(&push);
    assert_eq!(driver.run.version, version);
    let elsewhere = RunEvent::Pushed {
        fence: fence(&driver.run),
        old: Some(commit(50)),
        new: commit(51),
    };
    assert!(matches!(
        driver.refused(&elsewhere),
        Refused::PushFromElsewhere { .. }
    ));
    // The recorded one never arrived upstream, so the next begins where it began.
    driver.apply(&RunEvent::Pushed {
        fence: fence(&driver.run),
        old: Some(commit(1)),
        new: commit(52),
    });
}

#[test]
fn d2_the_second_worker_with_the_same_dispatch_is_refused() {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    let fence = fence(&driver.run);
    assert_eq!(
        driver.refused(&RunEvent::Claimed { fence }),
        Refused::AlreadyClaimed { fence }
    );
}

#[test]
fn r14_r15_a_phase_delivered_while_stopping_counts_as_done() {
    let mut driver = Driver::started(reviewed(2));
    driver.claim();
    driver.apply(&pushed(&driver.run));
    let by = "ada".to_owned();
    driver.apply(&RunEvent::Cancel { by });
    let head = Some(fresh(&driver.run));
    driver.apply(&ended(&driver.run, PhaseEnd::Succeeded, head));
    assert!(matches!(
        driver.run.phases[0].state,
        PhaseState::Done { .. }
    ));
    assert!(matches!(driver.run.end(), Some(End::Cancelled { .. })));
}

#[test]
fn r14_the_same_event_on_the_same_run_is_the_same_transition() {
    let mut driver = Driver::started(reviewed(2));
    driver.claim();
    let end = ended(&driver.run, PhaseEnd::Succeeded, driver.run.head.clone());
    let first = step(&driver.run, &end, 5).unwrap();
    let second = step(&driver.run, &end, 5).unwrap();
    assert_eq!(first, second);
    assert!(!first.effects.is_empty());
}

#[test]
fn r14_what_recovery_confirmed_is_where_the_next_phase_starts() {
    let run = new_run(
        &[(OnSuccess::GoOn, 0); 2],
        Repository::Branch,
        RunCaps::default(),
    );
    let mut driver = Driver::started(run);
    driver.claim();
    driver.apply(&pushed(&driver.run));
    let (fence, head) = (fence(&driver.run), fresh(&driver.run));
    let actions = driver.apply(&RunEvent::PushConfirmed {
        fence,
        head: head.clone(),
        spent: TURN,
    });
    assert!(matches!(
        &actions[..],
        [Action::StopPhase { .. }, Action::Dispatch { phase_index: 1, start: Some(start), .. }]
            if *start == head
    ));
}

#[test]
fn r13_a_lost_attempt_is_stopped_before_it_is_repeated() {
    let run = new_run(
        &[(OnSuccess::Review, 1)],
        Repository::Branch,
        RunCaps::default(),
    );
    let mut driver = Driver::started(run);
    driver.claim();
    let old = fence(&driver.run);
    let actions = driver.apply(&RunEvent::LeaseLost {
        fence: old,
        head: Some(commit(1)),
        spent: TURN,
    });
    assert!(matches!(
        &actions[..],
        [Action::StopPhase { fence, .. }, Action::Dispatch { attempt: 2, .. }] if *fence == old
    ));
}
