//! Runs, events and answers to test with.

use std::{collections::HashSet, sync::LazyLock};

use bulkhead_model::{
    CommitId, Digest, Fence, GateId,
    gate::{Answer, Approver, Binding, Decision, GatePolicy, OnSuccess, Person, Principal, Scope},
    run::{
        Action, Cap, CapKind, CapScope, Failure, PauseMode, PhaseEnd, PhasePlan, Plan, Refused,
        Repository, Run, RunCaps, RunEvent, Spent, Transition, step,
    },
};
use uuid::Uuid;

pub(crate) type Step = fn(&Run, &RunEvent, i64) -> Result<Transition, Refused>;

pub(crate) const TURN: Spent = Spent {
    cost_micro_usd: 10,
    turns: 1,
    input_tokens: 5,
    output_tokens: 5,
    time_ms: 100,
};

/// A workflow in short: for each phase whether a person looks at it, and its retries.
pub(crate) type Shape<'a> = &'a [(OnSuccess, u32)];

pub(crate) fn new_run(shape: Shape<'_>, repository: Repository, caps: RunCaps) -> Run {
    let phases = shape
        .iter()
        .enumerate()
        .map(|(index, (gate, retries))| PhasePlan {
            name: format!("phase-{index}").parse().unwrap(),
            gate: GatePolicy {
                on_success: *gate,
                expires_after_ms: Some(1_000),
                ..GatePolicy::default()
            },
            retries: *retries,
        });
    let plan = Plan::new(phases.collect(), repository, caps).unwrap();
    Run::new(bulkhead_model::RunId::from_uuid(Uuid::from_u128(7)), plan)
}

/// A run of reviewed phases on a branch, without retries or caps.
pub(crate) fn reviewed(phases: usize) -> Run {
    let shape = vec![(OnSuccess::Review, 0); phases];
    new_run(&shape, Repository::Branch, RunCaps::default())
}

pub(crate) fn commit(number: u64) -> CommitId {
    format!("{number:040x}").parse().unwrap()
}

pub(crate) fn approver(name: &str) -> Approver {
    let person = Person {
        token: name.to_owned(),
        scopes: vec![Scope::Decide],
    };
    Approver::of(&Principal::Person(person), &GatePolicy::default()).unwrap()
}

pub(crate) fn binding(run: &Run) -> Binding {
    // Made once: the walk makes millions of bindings.
    static DIGESTS: LazyLock<[Digest; 3]> =
        LazyLock::new(|| ["diff", "next", "policy"].map(|part| Digest::of_bytes(part.as_bytes())));
    let [diff, next, policy] = *DIGESTS;
    Binding {
        commit: run.head.clone(),
        diff,
        next,
        policy,
    }
}

pub(crate) fn decision(run: &Run, gate: GateId, answer: Answer) -> RunEvent {
    RunEvent::Decision(Decision {
        gate,
        answer,
        by: approver("ada"),
        shown: binding(run),
        now: binding(run),
    })
}

/// The answer to the gate that is open.
pub(crate) fn answer(run: &Run, answer: Answer) -> RunEvent {
    decision(run, run.open_gate().unwrap().1.id, answer)
}

pub(crate) fn fence(run: &Run) -> Fence {
    run.in_flight().unwrap().1.fence
}

pub(crate) fn send_back(comment: &str) -> Answer {
    Answer::SendBack {
        comment: comment.to_owned(),
    }
}

/// A commit that no one has seen before this attempt.
pub(crate) fn fresh(run: &Run) -> CommitId {
    commit(1_000 + run.last_fence.0)
}

pub(crate) fn pushed(run: &Run) -> RunEvent {
    RunEvent::Pushed {
        fence: fence(run),
        old: run.in_flight().unwrap().1.start.clone(),
        new: fresh(run),
    }
}

pub(crate) fn ended(run: &Run, result: PhaseEnd, head: Option<CommitId>) -> RunEvent {
    RunEvent::PhaseEnded {
        fence: fence(run),
        result,
        head,
        spent: TURN,
    }
}

/// Applies events that must all be accepted, and collects what was to be done.
pub(crate) struct Driver {
    pub(crate) run: Run,
    pub(crate) actions: Vec<Action>,
    pub(crate) now_ms: i64,
}

impl Driver {
    pub(crate) fn new(run: Run) -> Self {
        Self {
            run,
            actions: Vec::new(),
            now_ms: 0,
        }
    }

    /// A run that has started, its first phase dispatched.
    pub(crate) fn started(run: Run) -> Self {
        let base = (run.plan.repository == Repository::Branch).then(|| commit(1));
        let mut driver = Self::new(run);
        driver.apply(&RunEvent::Start { base });
        driver
    }

    pub(crate) fn apply(&mut self, event: &RunEvent) -> Vec<Action> {
        let transition = step(&self.run, event, self.now_ms)
            .unwrap_or_else(|refused| panic!("{event:?} was refused: {refused}"));
        self.run = transition.run;
        let actions: Vec<_> = transition.effects.into_iter().map(|e| e.action).collect();
        self.actions.extend(actions.clone());
        actions
    }

    pub(crate) fn refused(&self, event: &RunEvent) -> Refused {
        step(&self.run, event, self.now_ms).expect_err("the event must be refused")
    }

    pub(crate) fn claim(&mut self) {
        let fence = fence(&self.run);
        self.apply(&RunEvent::Claimed { fence });
        self.apply(&RunEvent::Started { fence });
    }

    /// The phase in flight does its work, pushes it and ends well.
    pub(crate) fn succeed(&mut self) -> Vec<Action> {
        self.claim();
        let head = fresh(&self.run);
        self.apply(&pushed(&self.run));
        self.apply(&ended(&self.run, PhaseEnd::Succeeded, Some(head)))
    }

    pub(crate) fn fail(&mut self) -> Vec<Action> {
        self.claim();
        let head = self.run.head.clone();
        self.apply(&ended(&self.run, failed(), head))
    }

    pub(crate) fn answer(&mut self, what: Answer) -> Vec<Action> {
        self.apply(&answer(&self.run, what))
    }

    pub(crate) fn dispatches(&self) -> usize {
        let dispatches = |action: &&Action| matches!(action, Action::Dispatch { .. });
        self.actions.iter().filter(dispatches).count()
    }
}

pub(crate) fn failed() -> PhaseEnd {
    PhaseEnd::Failed(Failure::Agent {
        why: "gave up".to_owned(),
    })
}

/// Every event worth trying in a state: right and wrong fences, heads, gates and bindings. Each comes
/// with the time at which it happens.
pub(crate) fn all_events(run: &Run) -> Vec<(RunEvent, i64)> {
    let mut events = vec![
        RunEvent::Start { base: None },
        RunEvent::Start {
            base: Some(commit(1)),
        },
        RunEvent::Resume,
        RunEvent::Cancel {
            by: "ada".to_owned(),
        },
    ];
    let modes = [PauseMode::Finish, PauseMode::Stop];
    events.extend(modes.map(|mode| RunEvent::Pause { mode }));
    let last = run.last_fence.0;
    events.extend(events_with_fence(run, Fence(last)));
    // What a wrong fence says is refused whatever it says: one event of each kind is enough.
    for fence in [last.saturating_sub(1), last + 1] {
        let mut kinds = HashSet::new();
        let mut wrong = events_with_fence(run, Fence(fence));
        wrong.retain(|event| kinds.insert(std::mem::discriminant(event)));
        events.extend(wrong);
    }
    let answered = run.answered.last().map(|answered| answered.gate);
    let open = run.open_gate().map(|(_, gate)| gate.id);
    let unknown = GateId::from_uuid(Uuid::from_u128(1));
    for gate in answered.into_iter().chain(open).chain([unknown]) {
        events.extend(events_at_gate(run, gate));
    }
    // Only an expiry depends on the time.
    let late = |event: &RunEvent| matches!(event, RunEvent::GateExpired { .. });
    let later: Vec<_> = events.iter().filter(|event| late(event)).cloned().collect();
    let at = |time: i64| move |event| (event, time);
    let early = events.into_iter().map(at(0));
    early.chain(later.into_iter().map(at(1 << 40))).collect()
}

fn events_with_fence(run: &Run, fence: Fence) -> Vec<RunEvent> {
    let start = run.in_flight().and_then(|(_, at)| at.start.clone());
    let heads = [None, run.head.clone(), Some(fresh(run))];
    let cap = |scope| Cap {
        scope,
        kind: CapKind::Turns,
    };
    let refused = Failure::Refused {
        why: "no user namespaces".to_owned(),
    };
    let mut events = vec![
        RunEvent::Claimed { fence },
        RunEvent::Started { fence },
        RunEvent::CapReached {
            fence,
            cap: cap(CapScope::Phase),
        },
        RunEvent::CapReached {
            fence,
            cap: cap(CapScope::Run),
        },
    ];
    for new in [fresh(run), commit(99)] {
        for old in [start.clone(), Some(commit(98))] {
            let new = new.clone();
            events.push(RunEvent::Pushed { fence, old, new });
        }
        events.push(RunEvent::PushConfirmed {
            fence,
            head: new,
            spent: TURN,
        });
    }
    for head in heads {
        for result in [
            PhaseEnd::Succeeded,
            failed(),
            PhaseEnd::Failed(refused.clone()),
        ] {
            events.push(RunEvent::PhaseEnded {
                fence,
                result,
                head: head.clone(),
                spent: TURN,
            });
        }
        events.push(RunEvent::LeaseLost {
            fence,
            head: head.clone(),
            spent: TURN,
        });
        events.push(RunEvent::Restarted { fence, head });
    }
    events
}

fn events_at_gate(run: &Run, gate: GateId) -> Vec<RunEvent> {
    let mut events = vec![RunEvent::GateExpired { gate }];
    let answers = [
        Answer::Approve,
        Answer::Reject,
        send_back("again, please"),
        send_back(" "),
    ];
    for answer in answers {
        let event = decision(run, gate, answer);
        let RunEvent::Decision(mut void) = event.clone() else {
            unreachable!("a decision was made above");
        };
        void.now.diff = void.now.next;
        events.extend([event, RunEvent::Decision(void)]);
    }
    events
}
