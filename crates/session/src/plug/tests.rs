#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::outbox::Outbox;

type Log = Arc<Mutex<Vec<String>>>;

#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    None,
    Fails,
    Hangs,
}

struct Fake {
    name: &'static str,
    log: Log,
    start: Trouble,
    down: Trouble,
}

impl Fake {
    async fn act(&self, what: &str, trouble: Trouble) -> Result<(), PlugError> {
        self.log
            .lock()
            .unwrap()
            .push(format!("{what} {}", self.name));
        match trouble {
            Trouble::None => Ok(()),
            Trouble::Fails => Err(PlugError::Words("broken".to_owned())),
            Trouble::Hangs => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Plug for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn limits(&self) -> TimeLimits {
        TimeLimits {
            on_message: Duration::from_millis(300),
            ..TimeLimits::of(Duration::from_millis(300))
        }
    }

    async fn on_session(&mut self, _: &mut Ctx) -> Result<(), PlugError> {
        self.act("begin", self.start).await
    }

    async fn finish(&mut self, _: &mut Ctx) -> Result<(), PlugError> {
        self.act("finish", Trouble::None).await
    }

    async fn teardown(&mut self, _: &mut Ctx, _: Ended) -> Result<(), PlugError> {
        self.act("down", self.down).await
    }
}

fn plugs(log: &Log, troubles: [(Trouble, Trouble); 3]) -> Plugs {
    let names = ["a", "b", "c"].into_iter().zip(troubles);
    let fakes = names.map(|(name, (start, down))| {
        let log = Arc::clone(log);
        Box::new(Fake {
            name,
            log,
            start,
            down,
        }) as Box<dyn Plug>
    });
    Plugs::new(fakes.collect())
}

fn ctx() -> Ctx {
    let (out, _) = Outbox::new(0);
    let session = SessionInfo {
        id: "test".to_owned(),
        dir: None,
        resumed: false,
    };
    Ctx::new(session, out, CancellationToken::new())
}

const FINE: (Trouble, Trouble) = (Trouble::None, Trouble::None);

#[tokio::test]
async fn h4_plugs_begin_in_order_and_finish_and_end_in_reverse() {
    let log = Log::default();
    let (mut plugs, mut ctx) = (plugs(&log, [FINE; 3]), ctx());
    plugs.begin(&mut ctx).await.unwrap();
    plugs.finish(&mut ctx).await.unwrap();
    assert!(plugs.teardown(&mut ctx, Ended::Cancelled).await.is_empty());
    let log = log.lock().unwrap().join(", ");
    insta::assert_snapshot!(log, @"begin a, begin b, begin c, finish c, finish b, finish a, down c, down b, down a");
}

#[tokio::test]
async fn h4_h5_after_a_failure_what_was_begun_is_torn_down_and_every_error_names_its_plug() {
    let log = Log::default();
    let broken = [
        (Trouble::None, Trouble::Hangs),
        (Trouble::Fails, Trouble::Fails),
        FINE,
    ];
    let (mut plugs, mut ctx) = (plugs(&log, broken), ctx());
    let error = plugs.begin(&mut ctx).await.unwrap_err();
    assert_eq!(crate::words::chain(&error), "plug b: broken");
    let errors = plugs.teardown(&mut ctx, Ended::Cancelled).await;
    let errors: Vec<_> = errors
        .iter()
        .map(|error| crate::words::chain(error))
        .collect();
    assert_eq!(
        errors,
        [
            "plug b: broken",
            "plug a: its teardown took longer than its limit of 300ms"
        ]
    );
    let log = log.lock().unwrap().join(", ");
    insta::assert_snapshot!(log, @"begin a, begin b, down b, down a");
}

#[tokio::test]
async fn h5_a_plug_that_hangs_is_ended_by_its_limit() {
    let log = Log::default();
    let mut plugs = plugs(&log, [(Trouble::Hangs, Trouble::None), FINE, FINE]);
    let error = plugs.begin(&mut ctx()).await.unwrap_err();
    assert_eq!(
        crate::words::chain(&error),
        "plug a: starting took longer than its limit of 300ms"
    );
}

#[tokio::test]
async fn h5_a_plug_that_panics_fails_by_its_name_and_the_others_are_torn_down() {
    struct Panics;
    #[async_trait]
    impl Plug for Panics {
        fn name(&self) -> &str {
            "panics"
        }
        async fn on_session(&mut self, _: &mut Ctx) -> Result<(), PlugError> {
            panic!("at once")
        }
    }
    let log = Log::default();
    let first = Fake {
        name: "first",
        log: Arc::clone(&log),
        start: Trouble::None,
        down: Trouble::None,
    };
    let mut plugs = Plugs::new(vec![Box::new(first), Box::new(Panics)]);
    let mut ctx = ctx();
    let error = plugs.begin(&mut ctx).await.unwrap_err();
    assert_eq!(
        crate::words::chain(&error),
        "plug panics: starting panicked"
    );
    assert!(plugs.teardown(&mut ctx, Ended::Cancelled).await.is_empty());
    assert_eq!(log.lock().unwrap().join(", "), "begin first, down first");
}

/// Does to messages what its rule says.
struct Rule {
    name: &'static str,
    log: Log,
    rule: fn(&Message) -> Verdict,
}

#[async_trait]
impl Plug for Rule {
    fn name(&self) -> &str {
        self.name
    }
    fn limits(&self) -> TimeLimits {
        TimeLimits {
            on_message: Duration::from_millis(300),
            ..TimeLimits::default()
        }
    }
    async fn on_session(&mut self, _: &mut Ctx) -> Result<(), PlugError> {
        Ok(())
    }
    fn wants_messages(&self) -> bool {
        true
    }
    async fn on_message(&mut self, _: &mut Ctx, message: &Message) -> Result<Verdict, PlugError> {
        let seen = format!("{} {:?} {}", self.name, message.direction, message.text);
        self.log.lock().unwrap().push(seen);
        match message.text.as_str() {
            "hang" => std::future::pending().await,
            "fail" => Err(PlugError::Words("no".to_owned())),
            _ => Ok((self.rule)(message)),
        }
    }
}

async fn pass(rules: [fn(&Message) -> Verdict; 2], message: Message) -> (String, Vec<Message>) {
    let log = Log::default();
    let named = ["a", "b"].into_iter().zip(rules);
    let list = named.map(|(name, rule)| {
        let log = Arc::clone(&log);
        Box::new(Rule { name, log, rule }) as Box<dyn Plug>
    });
    let (mut plugs, mut ctx) = (Plugs::new(list.collect()), ctx());
    plugs.begin(&mut ctx).await.unwrap();
    let out = plugs.pass(&mut ctx, message).await.unwrap();
    let log = log.lock().unwrap().join(", ");
    (log, out)
}

#[tokio::test]
async fn h5_messages_pass_the_list_in_its_order_to_the_agent_and_backwards_from_it() {
    let through: fn(&Message) -> Verdict = |_| Verdict::Pass;
    let (log, out) = pass([through; 2], Message::to_agent("x")).await;
    assert_eq!(log, "a ToAgent x, b ToAgent x");
    assert_eq!(out, [Message::to_agent("x")]);
    let (log, _) = pass([through; 2], Message::from_agent("x")).await;
    assert_eq!(log, "b FromAgent x, a FromAgent x");
}

#[tokio::test]
async fn h5_a_plug_changes_drops_and_answers_messages() {
    let through: fn(&Message) -> Verdict = |_| Verdict::Pass;
    let change: fn(&Message) -> Verdict = |_| Verdict::Change("y".to_owned());
    let drop: fn(&Message) -> Verdict = |_| Verdict::Drop;
    let answer: fn(&Message) -> Verdict = |message| match message.direction {
        Direction::FromAgent => Verdict::Answer(vec!["allowed".to_owned()]),
        Direction::ToAgent => Verdict::Pass,
    };
    let (log, out) = pass([change, through], Message::to_agent("x")).await;
    assert_eq!(log, "a ToAgent x, b ToAgent y");
    assert_eq!(out, [Message::to_agent("y")]);
    let (log, out) = pass([through, drop], Message::from_agent("x")).await;
    assert_eq!((log.as_str(), out), ("b FromAgent x", vec![]));
    // The answer goes back to the agent, past the plugs between.
    let (log, out) = pass([answer, through], Message::from_agent("x")).await;
    assert_eq!(log, "b FromAgent x, a FromAgent x, b ToAgent allowed");
    assert_eq!(out, [Message::to_agent("allowed")]);
}

#[tokio::test]
async fn h5_a_plug_that_hangs_or_fails_at_a_message_is_named() {
    let log = Log::default();
    let rule: fn(&Message) -> Verdict = |_| Verdict::Pass;
    let name = "a";
    let mut plugs = Plugs::new(vec![Box::new(Rule { name, log, rule })]);
    let mut ctx = ctx();
    plugs.begin(&mut ctx).await.unwrap();
    let error = plugs.pass(&mut ctx, Message::from_agent("hang")).await;
    insta::assert_snapshot!(crate::words::chain(&error.unwrap_err()), @"plug a: looking at a message took longer than its limit of 300ms");
    let error = plugs.pass(&mut ctx, Message::from_agent("fail")).await;
    insta::assert_snapshot!(crate::words::chain(&error.unwrap_err()), @"plug a: no");
}

#[tokio::test]
async fn h5_two_plugs_that_answer_each_other_without_end_are_stopped() {
    let log = Log::default();
    let rule: fn(&Message) -> Verdict = |_| Verdict::Answer(vec!["again".to_owned()]);
    let list = ["a", "b"].map(|name| {
        let log = Arc::clone(&log);
        Box::new(Rule { name, log, rule }) as Box<dyn Plug>
    });
    let (mut plugs, mut ctx) = (Plugs::new(list.into()), ctx());
    plugs.begin(&mut ctx).await.unwrap();
    // b answers towards the agent: nobody is left on that way.
    let out = plugs
        .pass(&mut ctx, Message::from_agent("x"))
        .await
        .unwrap();
    assert_eq!(out, [Message::to_agent("again")]);
    let out = plugs.pass(&mut ctx, Message::to_agent("x")).await.unwrap();
    assert_eq!(out, [Message::from_agent("again")]);
}
