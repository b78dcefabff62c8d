//! What must hold for every transition of every run, whatever happened before.

use bulkhead_model::run::{
    Action, End, PhaseEnd, PhaseState, Refused, Run, RunEvent, Status, Transition,
};

type Verdict = Result<(), String>;

fn must(holds: bool, rule: &str) -> Verdict {
    holds.then_some(()).ok_or_else(|| rule.to_owned())
}

/// Checks one answer of the machine against every rule.
pub(crate) fn check(
    before: &Run,
    event: &RunEvent,
    answer: &Result<Transition, Refused>,
) -> Verdict {
    let Ok(next) = answer else {
        return Ok(());
    };
    if next.run == *before {
        return must(next.effects.is_empty(), "a repetition has no effects");
    }
    must(before.end().is_none(), "an end is final")?;
    must(
        next.run.version == before.version + 1,
        "each change counts the version up by one",
    )?;
    check_event(before, event, &next.run)?;
    check_phases(before, event, &next.run)?;
    check_effects(before, event, next)?;
    check_state(&next.run)
}

fn fence_of(event: &RunEvent) -> Option<bulkhead_model::Fence> {
    match event {
        RunEvent::Claimed { fence }
        | RunEvent::Started { fence }
        | RunEvent::Pushed { fence, .. }
        | RunEvent::PhaseEnded { fence, .. }
        | RunEvent::PushConfirmed { fence, .. }
        | RunEvent::LeaseLost { fence, .. }
        | RunEvent::CapReached { fence, .. }
        | RunEvent::Restarted { fence, .. } => Some(*fence),
        _ => None,
    }
}

/// Who may change anything: only the fence in flight, and only decisions that fit what was seen.
fn check_event(before: &Run, event: &RunEvent, after: &Run) -> Verdict {
    if let Some(fence) = fence_of(event) {
        let current = before.in_flight().map(|(_, attempt)| attempt.fence);
        must(current == Some(fence), "a stale fence changes nothing")?;
    }
    if let RunEvent::Decision(decision) = event {
        must(
            decision.shown == decision.now,
            "a void decision changes nothing",
        )?;
        let open = before.open_gate().map(|(_, gate)| gate.id);
        must(
            open == Some(decision.gate),
            "only an open gate takes answers",
        )?;
    }
    let paused = matches!(before.status, Status::Paused { .. });
    let completed = matches!(after.end(), Some(End::Completed));
    must(
        !(paused && completed) || *event == RunEvent::Resume,
        "case 61: a paused run does not complete",
    )
}

fn is_done(state: &PhaseState) -> bool {
    matches!(state, PhaseState::Done { .. })
}

/// Phases are done once, in order, and only by success or approval.
fn check_phases(before: &Run, event: &RunEvent, after: &Run) -> Verdict {
    let mut newly = 0;
    for (old, new) in before.phases.iter().zip(&after.phases) {
        must(
            !is_done(&old.state) || old.state == new.state,
            "a done phase stays as it is",
        )?;
        newly += usize::from(!is_done(&old.state) && is_done(&new.state));
    }
    must(newly <= 1, "one event makes at most one phase done")?;
    let by_right = match event {
        RunEvent::PhaseEnded { result, .. } => *result == PhaseEnd::Succeeded,
        RunEvent::PushConfirmed { .. } | RunEvent::Decision(_) => true,
        _ => false,
    };
    must(
        newly == 0 || by_right,
        "only success or approval makes a phase done",
    )?;
    let not_done = after.phases.iter().position(|phase| !is_done(&phase.state));
    let later = not_done.map_or(&[][..], |index| &after.phases[index..]);
    must(
        !later.iter().any(|phase| is_done(&phase.state)),
        "phases are done in their order",
    )?;
    let failed_gate = |run: &Run| run.open_gate().map(|(_, gate)| gate.id);
    must(
        failed_gate(after).is_none_or(|id| before.answered.iter().all(|old| old.gate != id)),
        "a gate that opens again has a new id",
    )
}

fn check_effects(before: &Run, event: &RunEvent, next: &Transition) -> Verdict {
    let after = &next.run;
    let mut dispatched = 0;
    let (mut finished, mut notified, mut stopped) = (0, 0, None);
    for (index, effect) in (0..).zip(&next.effects) {
        must(
            effect.id.index == index
                && effect.id.version == after.version
                && effect.id.run == after.id,
            "effects are numbered by run, version and index",
        )?;
        match &effect.action {
            Action::Dispatch {
                phase_index,
                attempt,
                fence,
                start,
                ..
            } => {
                dispatched += 1;
                let index = *phase_index as usize;
                let now = after.phases[index].state.attempt();
                must(
                    now.is_some_and(|now| {
                        now.fence == *fence && now.attempt == *attempt && now.start == *start
                    }),
                    "a dispatch is for the attempt in flight",
                )?;
                must(
                    fence.0 == before.last_fence.0 + 1
                        && *attempt == before.phases[index].attempts + 1,
                    "each dispatch has a new fence and the next attempt",
                )?;
            }
            Action::Notify { gate, .. } => {
                notified += 1;
                let open = after.open_gate().map(|(_, open)| open.id);
                must(open == Some(*gate), "people are told of the open gate")?;
            }
            Action::StopPhase { fence, .. } => stopped = Some(*fence),
            Action::FinishRun { end } => {
                finished += 1;
                must(after.end() == Some(end), "only an ended run is finished")?;
            }
        }
    }
    must(dispatched <= 1, "one event dispatches at most once")?;
    let held = matches!(
        after.status,
        Status::Paused { .. } | Status::Stopping { .. }
    );
    must(
        dispatched == 0 || !held,
        "a paused or stopping run dispatches nothing",
    )?;
    let new_attempt = after.in_flight().map(|(_, at)| at.fence)
        != before.in_flight().map(|(_, at)| at.fence)
        && after.in_flight().is_some();
    must(
        new_attempt == (dispatched == 1),
        "what is in flight was dispatched",
    )?;
    let ended = before.end().is_none() && after.end().is_some();
    must(finished == usize::from(ended), "an end is announced once")?;
    let gate = |run: &Run| run.open_gate().map(|(_, gate)| gate.id);
    let opened = gate(after).is_some() && gate(after) != gate(before);
    must(
        notified == usize::from(opened),
        "an opened gate is announced once",
    )?;
    check_stop(before, event, after, stopped)
}

/// A claimed attempt that is given up while it may still live must be stopped.
fn check_stop(
    before: &Run,
    event: &RunEvent,
    after: &Run,
    stopped: Option<bulkhead_model::Fence>,
) -> Verdict {
    let claimed = |run: &Run| match run.current() {
        Some((_, phase)) => match &phase.state {
            PhaseState::Running(attempt) => Some(attempt.fence),
            _ => None,
        },
        None => None,
    };
    let over = matches!(event, RunEvent::PhaseEnded { .. });
    let stopping = matches!(before.status, Status::Stopping { .. });
    let given_up = claimed(before).filter(|fence| claimed(after) != Some(*fence));
    match given_up {
        Some(fence) if !over && !stopping => must(
            stopped == Some(fence),
            "a live attempt that is given up is stopped",
        ),
        _ => Ok(()),
    }
}

/// What every state must be by itself.
pub(crate) fn check_state(run: &Run) -> Verdict {
    let current = run.phases.iter().filter(|phase| {
        !matches!(
            phase.state,
            PhaseState::Waiting | PhaseState::Done { .. } | PhaseState::Dropped
        )
    });
    must(current.count() <= 1, "one phase at a time")?;
    let all_done = run.phases.iter().all(|phase| is_done(&phase.state));
    let in_flight = run.in_flight().is_some();
    let at_gate = run.open_gate().is_some();
    let held = run
        .current()
        .is_some_and(|(_, phase)| phase.state == PhaseState::Held);
    match &run.status {
        Status::Created => must(run.current().is_none(), "a created run does nothing"),
        // Case 16: somebody always has the next move, and only one.
        Status::Running => must(
            in_flight != at_gate && !held,
            "case 16: a running run has one next move",
        ),
        Status::Paused { .. } => must(
            in_flight || at_gate || held || all_done,
            "a paused run knows how it goes on",
        ),
        Status::Stopping { .. } => must(
            matches!(run.current(), Some((_, phase)) if matches!(phase.state, PhaseState::Running(_))),
            "a stopping run waits for an attempt",
        ),
        Status::Ended { end } => {
            must(run.current().is_none(), "an ended run has nothing open")?;
            must(
                *end != End::Completed || all_done,
                "a completed run has every phase done",
            )
        }
    }
}
