//! An exhaustive walk: every state that a small workflow can reach, and every event in each of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry};

use bulkhead_model::{
    gate::OnSuccess,
    run::{
        End, GateWhy, PhaseState, Refused, Repository, Run, RunCaps, RunEvent, Status, Transition,
        step,
    },
};

use crate::{
    run_rules::{check, check_state},
    run_support::{Step, all_events, fresh, new_run},
};

/// States that differ only in counters, times and texts behave alike: this is what remains.
fn abstracted(run: &Run) -> String {
    let status = match &run.status {
        Status::Ended { end } => format!("{end:?}"),
        Status::Stopping { then } => format!("stopping {then:?}"),
        Status::Paused { .. } => "paused".to_owned(),
        other => format!("{other:?}"),
    };
    let phases = run
        .phases
        .iter()
        .zip(run.plan.phases())
        .map(|(phase, plan)| {
            let state = match &phase.state {
                PhaseState::Dispatched(at) => format!("dispatched from {:?}", at.start == run.head),
                PhaseState::Running(at) => {
                    let push = at.push.as_ref().map(|push| push.new == fresh(run));
                    format!("running {} {push:?} {:?}", at.started_ms.is_some(), at.over)
                }
                PhaseState::AtGate(gate) => match &gate.why {
                    GateWhy::Review => "review".to_owned(),
                    GateWhy::Parked { .. } => "parked".to_owned(),
                },
                PhaseState::Done { .. } => "done".to_owned(),
                other => format!("{other:?}"),
            };
            let failures = phase.failures.min(plan.retries + 1);
            format!("{state} {failures} {}", phase.comment.is_some())
        });
    let phases: Vec<_> = phases.collect();
    let answered = run
        .answered
        .last()
        .map(|answered| answered.answer.to_string());
    format!("{status} {phases:?} {:?} {answered:?}", run.exhausted())
}

struct Walked {
    /// By abstracted state: one run that is in it, and the states that follow, with whether only a
    /// cancel leads there.
    states: BTreeMap<String, (Run, BTreeSet<(String, bool)>)>,
    accepted: usize,
}

fn walk(start: &Run, step: Step) -> Result<Walked, String> {
    let mut walked = Walked {
        states: BTreeMap::new(),
        accepted: 0,
    };
    let mut queue = VecDeque::from([start.clone()]);
    walked
        .states
        .insert(abstracted(start), (start.clone(), BTreeSet::new()));
    while let Some(run) = queue.pop_front() {
        let from = abstracted(&run);
        for (event, now_ms) in all_events(&run) {
            let answer = step(&run, &event, now_ms);
            check(&run, &event, &answer)
                .map_err(|rule| format!("{rule}\n  in {run:?}\n  by {event:?}\n  to {answer:?}"))?;
            let Ok(next) = answer else { continue };
            walked.accepted += 1;
            if next.run == run {
                continue;
            }
            let (to, cancel) = (
                abstracted(&next.run),
                matches!(event, RunEvent::Cancel { .. }),
            );
            walked
                .states
                .get_mut(&from)
                .unwrap()
                .1
                .insert((to.clone(), cancel));
            if let Entry::Vacant(state) = walked.states.entry(to) {
                state.insert((next.run.clone(), BTreeSet::new()));
                queue.push_back(next.run);
            }
        }
    }
    never_stuck(&walked)?;
    Ok(walked)
}

/// R2, case 16: from every state that is not an end, something other than a cancel leads on, and unless
/// the run is stopping or may run into a cap, it can still be completed.
fn never_stuck(walked: &Walked) -> Result<(), String> {
    let mut good: BTreeSet<&String> = BTreeSet::new();
    loop {
        let more: Vec<_> = walked
            .states
            .iter()
            .filter(|(name, (run, next))| {
                let completed = matches!(run.end(), Some(End::Completed));
                let leads = next.iter().any(|(to, cancel)| !cancel && good.contains(to));
                !good.contains(name) && (completed || leads)
            })
            .map(|(name, _)| name)
            .collect();
        if more.is_empty() {
            break;
        }
        good.extend(more);
    }
    for (name, (run, next)) in &walked.states {
        check_state(run)?;
        if run.end().is_some() {
            continue;
        }
        let leads_on = next.iter().any(|(to, cancel)| !cancel && to != name);
        let capped = run.plan.caps != RunCaps::default();
        let doomed = matches!(run.status, Status::Stopping { .. }) || capped;
        if !leads_on || !(doomed || good.contains(name)) {
            return Err(format!("stuck in {run:?}"));
        }
    }
    Ok(())
}

fn shapes() -> Vec<Vec<(OnSuccess, u32)>> {
    let (review, go_on) = (OnSuccess::Review, OnSuccess::GoOn);
    let one = [(review, 0), (go_on, 0), (go_on, 1)];
    let mut shapes: Vec<_> = one.iter().map(|phase| vec![*phase]).collect();
    for first in one {
        shapes.extend(one.map(|second| vec![first, second]));
    }
    for three in [
        [review, review, review],
        [go_on, review, go_on],
        [review, go_on, review],
    ] {
        shapes.push(three.iter().map(|gate| (*gate, 0)).collect());
    }
    shapes
}

fn every_start() -> Vec<Run> {
    let caps = RunCaps {
        turns: Some(3),
        ..RunCaps::default()
    };
    let mut runs = Vec::new();
    for shape in shapes() {
        runs.push(new_run(&shape, Repository::Branch, RunCaps::default()));
        if shape.len() == 1 || shape == [(OnSuccess::Review, 0), (OnSuccess::GoOn, 1)] {
            runs.push(new_run(&shape, Repository::None, caps));
        }
    }
    runs
}

#[test]
fn r2_r14_case_16_61_every_reachable_state_obeys_every_rule() {
    let mut states = 0;
    for run in every_start() {
        let walked = walk(&run, step).unwrap();
        states += walked.states.len();
        assert!(walked.accepted > walked.states.len());
        for end in ["Completed", "Rejected", "Cancelled", "Failed"] {
            let ended = |run: &Run| run.end().is_some_and(|e| format!("{e:?}").starts_with(end));
            let reached = walked.states.values().any(|(run, _)| ended(run));
            assert!(reached, "{end} is never reached by {:?}", run.plan);
        }
    }
    assert!(states > 1_000, "the walk saw only {states} states");
}

/// What a machine with one fault says. Each stands for a mistake that the rules must find.
fn broken() -> Vec<(&'static str, Step)> {
    fn shown_fence_ignored(run: &Run, event: &RunEvent, now: i64) -> Result<Transition, Refused> {
        let mut event = event.clone();
        if let (RunEvent::Claimed { fence }, Some((_, at))) = (&mut event, run.in_flight()) {
            *fence = at.fence;
        }
        step(run, &event, now)
    }
    fn void_decisions_count(run: &Run, event: &RunEvent, now: i64) -> Result<Transition, Refused> {
        let mut event = event.clone();
        if let RunEvent::Decision(decision) = &mut event {
            decision.shown = decision.now.clone();
        }
        step(run, &event, now)
    }
    fn forgets_answers(run: &Run, event: &RunEvent, now: i64) -> Result<Transition, Refused> {
        let mut next = step(run, event, now)?;
        if let (RunEvent::Decision(_), Some((index, gate))) = (event, run.open_gate()) {
            let reopened = gate.clone();
            if next.run.end().is_none() && next.run != *run {
                next.run.phases[index].state = PhaseState::AtGate(reopened);
            }
        }
        Ok(next)
    }
    fn pause_completes(run: &Run, event: &RunEvent, now: i64) -> Result<Transition, Refused> {
        let mut next = step(run, event, now)?;
        let all_done =
            |phase: &bulkhead_model::run::Phase| matches!(phase.state, PhaseState::Done { .. });
        if next.run.phases.iter().all(all_done) {
            next.run.status = Status::Ended {
                end: End::Completed,
            };
        }
        Ok(next)
    }
    fn ends_revive(run: &Run, event: &RunEvent, now: i64) -> Result<Transition, Refused> {
        let mut open = run.clone();
        if run.end().is_some() && *event == RunEvent::Resume {
            open.status = Status::Paused { since_ms: 0 };
        }
        step(&open, event, now)
    }
    fn dispatch_is_lost(run: &Run, event: &RunEvent, now: i64) -> Result<Transition, Refused> {
        let mut next = step(run, event, now)?;
        if matches!(event, RunEvent::Restarted { .. }) {
            next.effects.clear();
        }
        Ok(next)
    }
    fn dispatches_twice(run: &Run, event: &RunEvent, now: i64) -> Result<Transition, Refused> {
        let mut next = step(run, event, now)?;
        let again = next.effects.clone();
        next.effects.extend(again);
        Ok(next)
    }
    fn never_resumes(run: &Run, event: &RunEvent, now: i64) -> Result<Transition, Refused> {
        match event {
            RunEvent::Resume => Err(Refused::Paused),
            _ => step(run, event, now),
        }
    }
    fn unpushed_is_done(run: &Run, event: &RunEvent, now: i64) -> Result<Transition, Refused> {
        let mut event = event.clone();
        if let RunEvent::PhaseEnded { result, .. } = &mut event {
            *result = bulkhead_model::run::PhaseEnd::Succeeded;
        }
        step(run, &event, now)
    }
    vec![
        ("ignores fences", shown_fence_ignored),
        ("accepts void decisions", void_decisions_count),
        ("forgets that a gate was answered", forgets_answers),
        ("completes while paused", pause_completes),
        ("revives an ended run", ends_revive),
        ("loses a dispatch", dispatch_is_lost),
        ("dispatches twice", dispatches_twice),
        ("cannot resume", never_resumes),
        ("takes a failure for a success", unpushed_is_done),
    ]
}

#[test]
fn r2_the_rules_find_every_broken_machine() {
    for (fault, step) in broken() {
        let found = every_start().iter().any(|run| walk(run, step).is_err());
        assert!(found, "no rule notices a machine that {fault}");
    }
}

#[test]
fn r2_the_walk_reaches_what_people_see() {
    let run = new_run(
        &[(OnSuccess::Review, 0), (OnSuccess::GoOn, 1)],
        Repository::Branch,
        RunCaps::default(),
    );
    let walked = walk(&run, step).unwrap();
    let some = |seen: &dyn Fn(&Run) -> bool| walked.states.values().any(|(run, _)| seen(run));
    let paused = |run: &Run| matches!(run.status, Status::Paused { .. });
    assert!(some(&|run| paused(run) && run.open_gate().is_some()));
    assert!(some(&|run| paused(run) && run.in_flight().is_some()));
    assert!(some(&|run| paused(run) && run.current().is_none()));
    assert!(some(
        &|run| run.phases[1].failures == 1 && run.in_flight().is_some()
    ));
    assert!(some(&|run| matches!(run.status, Status::Stopping { .. })));
}
