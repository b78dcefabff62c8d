//! The stories that people complain about, one by one.

use bulkhead_model::{
    Digest,
    gate::{
        Answer, Approver, GatePolicy, NotAnApprover, OnSuccess, Person, PhaseCredential, Principal,
        Scope,
    },
    run::{
        Action, Cap, CapKind, CapScope, End, Failure, GateWhy, PauseMode, PhaseEnd, PhaseState,
        Refused, Repository, RunCaps, RunEvent, Status,
    },
};

use crate::run_support::{
    Driver, TURN, answer, commit, decision, ended, failed, fence, new_run, pushed, reviewed,
    send_back,
};

#[test]
fn r2_phases_run_in_order_each_from_where_the_last_one_ended() {
    let mut driver = Driver::started(reviewed(3));
    for index in 0..3_u64 {
        let start = driver.run.in_flight().unwrap().1.start.clone();
        assert_eq!(
            start,
            Some(commit(if index == 0 { 1 } else { 1_000 + index }))
        );
        driver.succeed();
        assert!(matches!(
            driver.run.open_gate().unwrap().1.why,
            GateWhy::Review
        ));
        driver.answer(Answer::Approve);
    }
    assert_eq!(driver.run.end(), Some(&End::Completed));
    assert_eq!(driver.dispatches(), 3);
}

#[test]
fn case_61_an_approval_dispatches_exactly_the_next_phase_once() {
    let mut driver = Driver::started(reviewed(2));
    driver.succeed();
    let approve = answer(&driver.run, Answer::Approve);
    let actions = driver.apply(&approve);
    assert!(matches!(
        &actions[..],
        [Action::Dispatch {
            phase_index: 1,
            attempt: 1,
            ..
        }]
    ));
    // The second click finds the same state and does nothing, now and after the phase has gone on.
    assert!(driver.apply(&approve).is_empty());
    driver.succeed();
    assert!(driver.apply(&approve).is_empty());
    driver.answer(Answer::Approve);
    assert!(driver.apply(&approve).is_empty());
    assert_eq!(driver.dispatches(), 2);
}

#[test]
fn case_61_another_answer_to_an_answered_gate_is_refused_by_name() {
    let mut driver = Driver::started(reviewed(2));
    driver.succeed();
    let gate = driver.run.open_gate().unwrap().1.id;
    let reject = decision(&driver.run, gate, Answer::Reject);
    driver.answer(Answer::Approve);
    assert_eq!(
        driver.refused(&reject),
        Refused::Answered {
            gate,
            answer: Answer::Approve,
            by: "ada".to_owned()
        }
    );
}

#[test]
fn case_61_approving_does_not_run_an_earlier_phase_again() {
    let mut driver = Driver::started(reviewed(3));
    driver.succeed();
    driver.answer(Answer::Approve);
    driver.succeed();
    driver.answer(Answer::Approve);
    let attempts: Vec<_> = driver
        .run
        .phases
        .iter()
        .map(|phase| phase.attempts)
        .collect();
    assert_eq!(attempts, [1, 1, 1]);
}

#[test]
fn case_61_a_paused_run_takes_the_last_approval_but_is_not_finished() {
    let mut driver = Driver::started(reviewed(1));
    driver.succeed();
    driver.apply(&RunEvent::Pause {
        mode: PauseMode::Finish,
    });
    assert!(driver.answer(Answer::Approve).is_empty());
    assert!(matches!(driver.run.status, Status::Paused { .. }));
    driver.apply(&RunEvent::Resume);
    assert_eq!(driver.run.end(), Some(&End::Completed));
}

#[test]
fn case_61_r15_an_answer_given_while_paused_is_worked_on_at_resume() {
    let mut driver = Driver::started(reviewed(2));
    driver.succeed();
    driver.apply(&RunEvent::Pause {
        mode: PauseMode::Finish,
    });
    assert!(driver.answer(Answer::Approve).is_empty());
    assert_eq!(driver.run.phases[1].state, PhaseState::Held);
    let actions = driver.apply(&RunEvent::Resume);
    assert!(matches!(
        &actions[..],
        [Action::Dispatch { phase_index: 1, .. }]
    ));
}

#[test]
fn r15_pausing_lets_the_phase_finish_or_stops_it_as_asked() {
    let mut driver = Driver::started(reviewed(2));
    driver.claim();
    let mode = PauseMode::Finish;
    assert!(driver.apply(&RunEvent::Pause { mode }).is_empty());
    assert!(driver.run.in_flight().is_some());
    let old = fence(&driver.run);
    let mode = PauseMode::Stop;
    let actions = driver.apply(&RunEvent::Pause { mode });
    assert!(matches!(&actions[..], [Action::StopPhase { fence, .. }] if *fence == old));
    let late = RunEvent::PhaseEnded {
        fence: old,
        result: PhaseEnd::Succeeded,
        head: driver.run.head.clone(),
        spent: TURN,
    };
    assert!(matches!(driver.refused(&late), Refused::StaleFence { .. }));
    let actions = driver.apply(&RunEvent::Resume);
    assert!(matches!(
        &actions[..],
        [Action::Dispatch { attempt: 2, .. }]
    ));
}

#[test]
fn r15_a_phase_that_has_pushed_is_not_stopped_by_a_pause() {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    driver.apply(&pushed(&driver.run));
    let mode = PauseMode::Stop;
    assert!(driver.apply(&RunEvent::Pause { mode }).is_empty());
    assert!(driver.run.in_flight().is_some());
}

#[test]
fn case_62_a_decision_on_what_has_changed_since_is_void_and_says_what_changed() {
    let mut driver = Driver::started(reviewed(2));
    driver.succeed();
    let RunEvent::Decision(good) = answer(&driver.run, Answer::Approve) else {
        unreachable!("an answer is a decision");
    };
    let other = Digest::of_bytes(b"other");
    type Change = fn(&mut bulkhead_model::gate::Binding, Digest);
    let changes: [(&str, Change); 4] = [
        ("the commit", |now, _| now.commit = Some(commit(77))),
        ("the diff", |now, other| now.diff = other),
        ("the next phase", |now, other| now.next = other),
        ("the effective policy", |now, other| now.policy = other),
    ];
    for (part, change) in changes {
        let mut void = good.clone();
        change(&mut void.now, other);
        let refused = driver.refused(&RunEvent::Decision(void));
        assert!(matches!(refused, Refused::Void { .. }));
        assert!(refused.to_string().contains(part), "{refused}");
        assert!(driver.run.open_gate().is_some());
    }
    driver.apply(&RunEvent::Decision(good));
}

#[test]
fn case_62_a_phases_own_credential_can_never_answer_a_gate() {
    let driver = Driver::started(reviewed(1));
    let credential = Principal::Phase(PhaseCredential {
        run: driver.run.id,
        phase: driver.run.plan.phases()[0].name.clone(),
        attempt: 1,
        fence: fence(&driver.run),
    });
    let refused = Approver::of(&credential, &GatePolicy::default());
    assert_eq!(refused, Err(NotAnApprover::PhaseCredential));
}

#[test]
fn case_62_an_approver_needs_the_scope_and_a_place_on_the_gates_list() {
    let person = |token: &str, scopes: &[Scope]| {
        Principal::Person(Person {
            token: token.to_owned(),
            scopes: scopes.to_vec(),
        })
    };
    let listed = GatePolicy {
        approvers: vec!["ada".to_owned()],
        ..GatePolicy::default()
    };
    let reader = person("ada", &[Scope::Read, Scope::Run, Scope::Admin]);
    assert!(matches!(
        Approver::of(&reader, &listed),
        Err(NotAnApprover::MissingScope { .. })
    ));
    let stranger = person("bob", &[Scope::Decide]);
    assert!(matches!(
        Approver::of(&stranger, &listed),
        Err(NotAnApprover::NotListed { .. })
    ));
    assert!(Approver::of(&person("ada", &[Scope::Decide]), &listed).is_ok());
    assert!(Approver::of(&stranger, &GatePolicy::default()).is_ok());
}

#[test]
fn case_62_the_machine_checks_the_list_again() {
    let mut run = reviewed(1);
    let mut phase = run.plan.phases()[0].clone();
    phase.gate.approvers = vec!["grace".to_owned()];
    run.plan = bulkhead_model::run::Plan::new(vec![phase], Repository::Branch, RunCaps::default())
        .unwrap();
    let mut driver = Driver::started(run);
    driver.succeed();
    let by_ada = answer(&driver.run, Answer::Approve);
    assert!(matches!(
        driver.refused(&by_ada),
        Refused::NotAnApprover { .. }
    ));
}

#[test]
fn case_62_prose_is_not_an_answer() {
    for prose in ["yes", "ok, go on", "Approve", "APPROVE", "approved", ""] {
        let json = serde_json::json!({ "decision": prose });
        assert!(serde_json::from_value::<Answer>(json).is_err(), "{prose:?}");
    }
}

#[test]
fn r2_a_phase_sent_back_runs_again_with_the_comment_from_the_branch() {
    let mut driver = Driver::started(reviewed(2));
    driver.succeed();
    let head = driver.run.head.clone();
    let actions = driver.answer(send_back("name it better"));
    let [
        Action::Dispatch {
            phase_index: 0,
            attempt: 2,
            start,
            comment,
            ..
        },
    ] = &actions[..]
    else {
        panic!("not one dispatch of the same phase: {actions:?}");
    };
    assert_eq!((start, comment.as_deref()), (&head, Some("name it better")));
    assert!(driver.run.phases[0].comment.is_some());
    // It is still in the prompt when that attempt fails and is run again.
    driver.fail();
    let actions = driver.answer(Answer::Approve);
    assert!(matches!(
        &actions[..],
        [Action::Dispatch {
            comment: Some(_),
            ..
        }]
    ));
    driver.succeed();
    let actions = driver.answer(Answer::Approve);
    assert!(matches!(
        &actions[..],
        [Action::Dispatch { comment: None, .. }]
    ));
}

#[test]
fn r2_a_comment_must_say_something_and_is_bounded() {
    let mut driver = Driver::started(reviewed(1));
    driver.succeed();
    for comment in ["", "  \n", &"x".repeat((16 << 10) + 1)] {
        let refused = driver.refused(&answer(&driver.run, send_back(comment)));
        assert!(matches!(refused, Refused::Comment { .. }));
    }
    driver.answer(send_back(&"x".repeat(16 << 10)));
}

#[test]
fn r2_a_failed_phase_parks_and_approve_runs_it_again() {
    let mut driver = Driver::started(reviewed(2));
    driver.fail();
    let why = driver.run.open_gate().unwrap().1.why.clone();
    assert!(matches!(
        why,
        GateWhy::Parked {
            failure: Failure::Agent { .. }
        }
    ));
    let actions = driver.answer(Answer::Approve);
    assert!(matches!(
        &actions[..],
        [Action::Dispatch {
            phase_index: 0,
            attempt: 2,
            ..
        }]
    ));
}

#[test]
fn r2_no_gate_on_success_still_parks_a_failure() {
    let shape = [(OnSuccess::GoOn, 0), (OnSuccess::GoOn, 0)];
    let run = new_run(&shape, Repository::Branch, RunCaps::default());
    let mut driver = Driver::started(run);
    let actions = driver.succeed();
    assert!(matches!(
        &actions[..],
        [Action::Dispatch { phase_index: 1, .. }]
    ));
    driver.fail();
    assert!(driver.run.open_gate().is_some());
}

#[test]
fn r15_retries_come_first_and_count_anew_after_a_person() {
    let run = new_run(
        &[(OnSuccess::Review, 2)],
        Repository::Branch,
        RunCaps::default(),
    );
    let mut driver = Driver::started(run);
    for _ in 0..2 {
        let actions = driver.fail();
        assert!(matches!(&actions[..], [Action::Dispatch { .. }]));
    }
    driver.fail();
    assert!(driver.run.open_gate().is_some());
    driver.answer(Answer::Approve);
    let actions = driver.fail();
    assert!(matches!(
        &actions[..],
        [Action::Dispatch { attempt: 5, .. }]
    ));
}

#[test]
fn r3_a_sandbox_that_cannot_be_built_is_not_retried_and_has_no_fallback() {
    let run = new_run(
        &[(OnSuccess::GoOn, 5)],
        Repository::Branch,
        RunCaps::default(),
    );
    let mut driver = Driver::started(run);
    driver.claim();
    let why = "user namespaces are off".to_owned();
    let refused = PhaseEnd::Failed(Failure::Refused { why });
    let head = driver.run.head.clone();
    driver.apply(&ended(&driver.run, refused, head));
    let GateWhy::Parked { failure } = driver.run.open_gate().unwrap().1.why.clone() else {
        panic!("it must park");
    };
    assert!(failure.to_string().contains("user namespaces are off"));
}

#[test]
fn r2_a_phase_that_changed_nothing_is_done_without_a_push() {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    let start = driver.run.head.clone();
    driver.apply(&ended(&driver.run, PhaseEnd::Succeeded, start));
    assert!(matches!(
        driver.run.open_gate().unwrap().1.why,
        GateWhy::Review
    ));
}

#[test]
fn r15_cancel_waits_for_what_is_in_flight_and_is_idempotent() {
    let mut driver = Driver::started(reviewed(2));
    driver.claim();
    let cancel = RunEvent::Cancel {
        by: "ada".to_owned(),
    };
    let actions = driver.apply(&cancel);
    assert!(matches!(&actions[..], [Action::StopPhase { .. }]));
    assert!(matches!(driver.run.status, Status::Stopping { .. }));
    assert!(driver.apply(&cancel).is_empty());
    // A push that was not recorded before the cancel is refused.
    assert_eq!(driver.refused(&pushed(&driver.run)), Refused::Stopping);
    driver.apply(&ended(&driver.run, failed(), None));
    assert!(matches!(driver.run.end(), Some(End::Cancelled { by }) if by == "ada"));
    assert!(driver.apply(&cancel).is_empty());
}

#[test]
fn r15_cancel_ends_at_once_where_nothing_runs() {
    let cancel = RunEvent::Cancel {
        by: "ada".to_owned(),
    };
    let mut created = Driver::new(reviewed(1));
    created.apply(&cancel);
    let mut dispatched = Driver::started(reviewed(1));
    dispatched.apply(&cancel);
    let mut at_gate = Driver::started(reviewed(1));
    at_gate.succeed();
    at_gate.apply(&cancel);
    for driver in [created, dispatched, at_gate] {
        assert!(matches!(driver.run.end(), Some(End::Cancelled { .. })));
    }
}

#[test]
fn r15_a_gate_expires_only_when_its_time_is_over_and_never_approves() {
    let mut driver = Driver::started(reviewed(2));
    driver.succeed();
    let gate = driver.run.open_gate().unwrap().1.id;
    driver.now_ms = 999;
    let expired = RunEvent::GateExpired { gate };
    assert_eq!(driver.refused(&expired), Refused::NotExpired { left_ms: 1 });
    driver.now_ms = 1_000;
    driver.apply(&expired);
    assert_eq!(driver.run.end(), Some(&End::Rejected { by: None }));
}

#[test]
fn r15_a_gates_clock_stands_still_while_the_run_is_paused() {
    let mut driver = Driver::started(reviewed(2));
    driver.succeed();
    let gate = driver.run.open_gate().unwrap().1.id;
    driver.now_ms = 600;
    driver.apply(&RunEvent::Pause {
        mode: PauseMode::Finish,
    });
    driver.now_ms = 5_600;
    let expired = RunEvent::GateExpired { gate };
    assert_eq!(driver.refused(&expired), Refused::Paused);
    driver.apply(&RunEvent::Resume);
    assert_eq!(
        driver.refused(&expired),
        Refused::NotExpired { left_ms: 400 }
    );
}

#[test]
fn r15_a_phases_cap_stops_and_parks_it_without_a_retry() {
    let run = new_run(
        &[(OnSuccess::Review, 3)],
        Repository::Branch,
        RunCaps::default(),
    );
    let mut driver = Driver::started(run);
    driver.claim();
    let cap = Cap {
        scope: CapScope::Phase,
        kind: CapKind::Cost,
    };
    let fence = fence(&driver.run);
    let actions = driver.apply(&RunEvent::CapReached { fence, cap });
    assert!(matches!(&actions[..], [Action::StopPhase { .. }]));
    driver.apply(&ended(&driver.run, failed(), Some(commit(1))));
    let GateWhy::Parked { failure } = driver.run.open_gate().unwrap().1.why.clone() else {
        panic!("it must park");
    };
    assert_eq!(
        failure.to_string(),
        "the phase reached the phase's cap on cost"
    );
}

#[test]
fn r15_a_runs_cap_fails_the_run_by_name() {
    for kind in [CapKind::Cost, CapKind::Turns, CapKind::Time] {
        let mut driver = Driver::started(reviewed(2));
        driver.claim();
        let cap = Cap {
            scope: CapScope::Run,
            kind,
        };
        let fence = fence(&driver.run);
        driver.apply(&RunEvent::CapReached { fence, cap });
        driver.apply(&ended(&driver.run, failed(), Some(commit(1))));
        assert_eq!(driver.run.end(), Some(&End::Failed { cap }));
    }
}

#[test]
fn r15_what_was_spent_counts_against_the_run_over_all_attempts() {
    let spends = [
        RunCaps {
            cost_micro_usd: Some(20),
            ..RunCaps::default()
        },
        RunCaps {
            turns: Some(2),
            ..RunCaps::default()
        },
        RunCaps {
            time_ms: Some(200),
            ..RunCaps::default()
        },
    ];
    for caps in spends {
        let run = new_run(&[(OnSuccess::GoOn, 0); 3], Repository::Branch, caps);
        let mut driver = Driver::started(run);
        driver.succeed();
        assert!(driver.run.in_flight().is_some());
        driver.succeed();
        assert!(
            matches!(driver.run.end(), Some(End::Failed { .. })),
            "{caps:?}"
        );
        assert!(matches!(
            driver.run.phases[1].state,
            PhaseState::Done { .. }
        ));
    }
}

#[test]
fn r15_the_last_phase_may_use_up_the_cap_and_still_be_approved_but_not_sent_back() {
    let caps = RunCaps {
        turns: Some(1),
        ..RunCaps::default()
    };
    let run = new_run(&[(OnSuccess::Review, 0)], Repository::Branch, caps);
    let mut driver = Driver::started(run);
    driver.succeed();
    let back = answer(&driver.run, send_back("more"));
    assert!(matches!(driver.refused(&back), Refused::CapReached { .. }));
    driver.answer(Answer::Approve);
    assert_eq!(driver.run.end(), Some(&End::Completed));
}

#[test]
fn r1_a_run_without_a_repository_needs_no_push() {
    let run = new_run(
        &[(OnSuccess::GoOn, 0)],
        Repository::None,
        RunCaps::default(),
    );
    let mut driver = Driver::started(run);
    driver.claim();
    driver.apply(&ended(&driver.run, PhaseEnd::Succeeded, None));
    assert_eq!(driver.run.end(), Some(&End::Completed));
}

#[test]
fn r15_what_an_agent_reports_as_cost_is_rounded_up_and_never_negative() {
    let spent = |cost_usd| {
        let usage = bulkhead_model::Usage {
            cost_usd,
            turns: 2,
            ..bulkhead_model::Usage::default()
        };
        bulkhead_model::run::Spent::of(&usage, 5).cost_micro_usd
    };
    assert_eq!(spent(None), 0);
    assert_eq!(spent(Some(0.123_456_1)), 123_457);
    assert_eq!(spent(Some(-3.0)), 0);
    assert_eq!(spent(Some(f64::NAN)), 0);
    assert_eq!(spent(Some(f64::INFINITY)), 0);
    assert_eq!(spent(Some(1e300)), u64::MAX);
}

/// A claimed phase that went over its cap and is being stopped.
fn over_cap() -> Driver {
    let mut driver = Driver::started(reviewed(1));
    driver.claim();
    let cap = Cap {
        scope: CapScope::Phase,
        kind: CapKind::Turns,
    };
    let fence = fence(&driver.run);
    driver.apply(&RunEvent::CapReached { fence, cap });
    driver
}

#[test]
fn r15_neither_a_pause_nor_a_restart_lets_a_phase_escape_its_cap() {
    let mut paused = over_cap();
    let mode = PauseMode::Stop;
    assert!(paused.apply(&RunEvent::Pause { mode }).is_empty());
    paused.apply(&ended(&paused.run, failed(), Some(commit(1))));
    let mut restarted = over_cap();
    let (fence, head) = (fence(&restarted.run), Some(commit(1)));
    restarted.apply(&RunEvent::Restarted { fence, head });
    for driver in [paused, restarted] {
        let why = &driver.run.open_gate().unwrap().1.why;
        assert!(
            matches!(
                why,
                GateWhy::Parked {
                    failure: Failure::Cap { .. }
                }
            ),
            "{why:?}"
        );
    }
}

#[test]
fn case_62_the_next_phase_starts_from_the_very_commit_that_was_seen() {
    let mut driver = Driver::started(reviewed(2));
    driver.succeed();
    // Somebody pushed to the run's branch while the gate waited, and the person saw that.
    let RunEvent::Decision(mut decision) = answer(&driver.run, Answer::Approve) else {
        unreachable!("an answer is a decision");
    };
    decision.shown.commit = Some(commit(77));
    decision.now.commit = Some(commit(77));
    let actions = driver.apply(&RunEvent::Decision(decision));
    assert!(matches!(
        &actions[..],
        [Action::Dispatch { start: Some(start), .. }] if *start == commit(77)
    ));
}

#[test]
fn case_61_the_latest_answers_are_remembered_and_their_number_is_bounded() {
    let mut driver = Driver::started(reviewed(1));
    let mut given = Vec::new();
    for round in 0..100 {
        driver.succeed();
        let back = answer(&driver.run, send_back(&format!("round {round}")));
        driver.apply(&back);
        given.push(back);
    }
    assert_eq!(driver.run.answered.len(), 64);
    for back in &given[given.len() - 64..] {
        assert!(driver.apply(back).is_empty(), "a repetition does nothing");
    }
    assert!(matches!(
        driver.refused(&given[0]),
        Refused::NoSuchGate { .. }
    ));
}
