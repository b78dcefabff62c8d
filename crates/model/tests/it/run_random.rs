//! Long random lives of runs: what only shows after many events.

use std::collections::BTreeSet;

use bulkhead_model::{
    gate::OnSuccess,
    run::{Action, Repository, Run, RunCaps, step},
};
use proptest::prelude::*;

use crate::{
    run_rules::check,
    run_support::{all_events, new_run},
};

fn any_run() -> impl Strategy<Value = Run> {
    let gate = prop_oneof![Just(OnSuccess::Review), Just(OnSuccess::GoOn)];
    let shape = prop::collection::vec((gate, 0..3_u32), 1..5);
    let repository = prop_oneof![Just(Repository::Branch), Just(Repository::None)];
    (shape, repository, prop::option::of(1..40_u64)).prop_map(|(shape, repository, turns)| {
        let caps = RunCaps {
            turns,
            ..RunCaps::default()
        };
        new_run(&shape, repository, caps)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r2_r14_no_dispatch_gate_or_completion_happens_twice(
        start in any_run(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..200),
    ) {
        let mut run = start;
        let (mut ids, mut attempts, mut fences, mut gates) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut finished = 0;
        for pick in picks {
            // Only events that do something, and no cancel: otherwise most lives would be short.
            let useful: Vec<_> = all_events(&run)
                .into_iter()
                .filter(|(event, _)| !matches!(event, bulkhead_model::run::RunEvent::Cancel { .. }))
                .filter_map(|(event, now)| Some((step(&run, &event, now).ok()?, event)))
                .filter(|(next, _)| next.run != run)
                .collect();
            if useful.is_empty() {
                prop_assert!(run.end().is_some(), "stuck in {run:?}");
                break;
            }
            let (next, event) = pick.get(&useful).clone();
            check(&run, &event, &Ok(next.clone())).map_err(TestCaseError::fail)?;
            for effect in next.effects {
                prop_assert!(ids.insert(effect.id), "effect {} twice", effect.id);
                match effect.action {
                    Action::Dispatch { phase, attempt, fence, .. } => {
                        prop_assert!(attempts.insert((phase, attempt)));
                        prop_assert!(fences.insert(fence));
                    }
                    Action::Notify { gate, .. } => prop_assert!(gates.insert(gate)),
                    Action::FinishRun { .. } => finished += 1,
                    Action::StopPhase { .. } => {}
                }
            }
            run = next.run;
        }
        prop_assert_eq!(finished, usize::from(run.end().is_some()));
    }

    #[test]
    fn r14_a_run_survives_its_stored_form(
        start in any_run(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let mut run = start;
        for pick in picks {
            let events = all_events(&run);
            let (event, now) = pick.get(&events);
            if let Ok(next) = step(&run, event, *now) {
                run = next.run;
            }
            let stored = serde_json::to_string(&run).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Run>(&stored).unwrap(), &run);
        }
    }
}
