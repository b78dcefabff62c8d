#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;

use bulkhead_wire::pipe::{Failure, Loaded, Ready as ReadyFrame, Waiting, done::Outcome};
use proptest::prelude::*;

use super::*;

const FETCH: u32 = 4;
const SEND_ERROR: u32 = 32;

fn call(id: u32, method: u32) -> Option<Frame> {
    Some(Frame::Call(Call {
        id,
        method,
        arguments_json: "[]".into(),
    }))
}

fn waiting() -> Option<Frame> {
    Some(Frame::Waiting(Waiting {}))
}

fn done(outcome: Outcome) -> Option<Frame> {
    Some(Frame::Done(Done {
        outcome: Some(outcome),
        ..Done::default()
    }))
}

fn running(errand: Errand) -> Life {
    let mut life = Life::new(errand);
    let steps = life.frame(Some(Frame::Ready(ReadyFrame {}))).unwrap();
    assert_eq!(steps, [Step::SendStart]);
    life
}

/// O4: everything that a process says out of its turn is a violation, and each kind has its name.
#[test]
fn o4_what_breaks_the_protocol_is_named() {
    let early = Life::new(Errand::Run).frame(call(1, FETCH));
    assert_eq!(early.unwrap_err(), Violation::OutOfOrder);
    let cases = [
        (None, Violation::Empty),
        (Some(Frame::Ready(ReadyFrame {})), Violation::OutOfOrder),
        (call(0, FETCH), Violation::CallId),
        (call(2, FETCH), Violation::CallId),
        (call(1, 9_999), Violation::UnknownMethod),
        (call(1, 1), Violation::UnknownMethod),
        (waiting(), Violation::WaitsForNothing),
        (
            done(Outcome::Exports(Default::default())),
            Violation::WrongEnd,
        ),
        (Some(Frame::Done(Done::default())), Violation::WrongEnd),
    ];
    for (frame, expected) in cases {
        let violation = running(Errand::Run).frame(frame.clone()).unwrap_err();
        assert_eq!(violation, expected, "{frame:?}");
    }
    let mut twice = running(Errand::Run);
    twice.frame(call(1, FETCH)).unwrap();
    assert_eq!(twice.frame(call(1, FETCH)).unwrap_err(), Violation::CallId);
    twice.frame(waiting()).unwrap();
    assert_eq!(
        twice.frame(call(2, FETCH)).unwrap_err(),
        Violation::WhileWaiting
    );
    let mut checked = running(Errand::Check);
    let wrong = checked.frame(done(Outcome::ResultJson("1".into())));
    assert_eq!(wrong.unwrap_err(), Violation::WrongEnd);
}

/// M14: calls beyond what may be carried out at once wait, and beyond what may be under way they end the process.
#[test]
fn m14_calls_wait_for_others_and_have_a_bound() {
    let mut life = running(Errand::Run);
    let mut begun = 0;
    for id in 1..=64 {
        begun += life.frame(call(id, FETCH)).unwrap().len();
    }
    assert_eq!(begun, CALLS_AT_ONCE_MAX);
    let steps = life.answered(refusal(1, "failed", ""));
    assert!(
        matches!(steps.as_slice(), [Step::Begin(next)] if next.id == 9),
        "{steps:?}"
    );
    assert_eq!(
        life.frame(call(65, FETCH)).unwrap_err(),
        Violation::TooManyCalls
    );
}

/// P21: a call beyond its limit is refused without anybody being asked.
#[test]
fn p21_a_call_beyond_its_limit_is_answered_here() {
    let mut life = running(Errand::Run);
    for id in 1..=5 {
        assert_eq!(life.frame(call(id, SEND_ERROR)).unwrap().len(), 1);
    }
    assert_eq!(life.frame(call(6, SEND_ERROR)).unwrap(), []);
    let steps = life.frame(waiting()).unwrap();
    let [Step::Deliver(answer)] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    assert_eq!(answer.id, 6);
    assert_eq!(life.state(), State::Running);
}

/// T27: until the module stands, what takes time is its loading.
#[test]
fn t27_loading_and_running_are_told_apart() {
    let mut life = running(Errand::Run);
    assert!(!life.is_loaded());
    assert_eq!(life.frame(Some(Frame::Loaded(Loaded {}))).unwrap(), []);
    assert!(life.is_loaded());
    let twice = life.frame(Some(Frame::Loaded(Loaded {}))).unwrap_err();
    assert_eq!(twice, Violation::OutOfOrder);
    life.frame(done(Outcome::Failure(Failure::default())))
        .unwrap();
    assert_eq!(life.state(), State::Ended);
}

#[derive(Debug, Clone, Copy)]
enum Move {
    Call,
    Wait,
    Answer,
    Slot,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        Just(Move::Call),
        Just(Move::Wait),
        Just(Move::Answer),
        Just(Move::Slot)
    ];
    proptest::collection::vec(one, 0..300)
}

/// Both sides at once: a process that keeps the protocol, and a broker that carries calls out in any order.
#[derive(Default)]
struct Both {
    asleep: bool,
    has_slot: bool,
    asked_for_slot: bool,
    called: u32,
    begun: BTreeSet<u32>,
    got: BTreeSet<u32>,
}

impl Both {
    fn perform(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Begin(call) => assert!(self.begun.insert(call.id)),
                Step::Deliver(answer) => {
                    assert!(self.asleep && self.has_slot, "an answer to one that runs");
                    assert!(self.got.insert(answer.id), "answered twice");
                    self.asleep = false;
                }
                Step::LeaveSlot => {
                    assert!(self.asleep && self.has_slot);
                    self.has_slot = false;
                }
                Step::AskForSlot => {
                    assert!(!self.has_slot && !self.asked_for_slot);
                    self.asked_for_slot = true;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(self.asleep || self.has_slot, "it runs without a slot");
        assert!(self.begun.len() <= CALLS_AT_ONCE_MAX);
    }

    fn step(&mut self, life: &mut Life, step: Move) {
        let under_way = self.called as usize - self.got.len();
        let steps = match step {
            Move::Call if !self.asleep && under_way < CALLS_UNDER_WAY_MAX => {
                self.called += 1;
                life.frame(call(self.called, FETCH)).unwrap()
            }
            Move::Wait if !self.asleep && under_way > 0 => {
                self.asleep = true;
                life.frame(waiting()).unwrap()
            }
            Move::Answer => match self.begun.pop_first() {
                Some(id) => life.answered(refusal(id, "failed", "")),
                None => return,
            },
            Move::Slot if self.asked_for_slot => {
                self.asked_for_slot = false;
                self.has_slot = true;
                life.slot()
            }
            _ => return,
        };
        self.perform(steps);
    }
}

proptest! {
    /// D8: whatever comes when, one that runs has a slot, one that sleeps is woken by one answer, and every call is answered
    /// once.
    #[test]
    fn d8_who_runs_has_a_slot_and_every_call_is_answered_once(moves in moves()) {
        let mut life = running(Errand::Run);
        let mut both = Both { has_slot: true, ..Both::default() };
        for step in moves {
            both.step(&mut life, step);
        }
        // Whatever is still open comes to its end.
        for _ in 0..=2 * CALLS_UNDER_WAY_MAX {
            for step in [Move::Wait, Move::Answer, Move::Slot] {
                both.step(&mut life, step);
            }
        }
        prop_assert_eq!(both.got.len(), both.called as usize);
        prop_assert_eq!(life.state(), State::Running);
    }
}
