//! The ordered list: forwards to begin, backwards to finish and to tear down.

use std::{collections::VecDeque, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bulkhead_host::Host;
use futures::FutureExt as _;
use tokio::time::timeout;

use super::{Ctx, Direction, Ended, Message, NamedError, Passage, Plug, PlugError, Verdict};

/// The most messages that one message may become on its way.
const MESSAGES_MAX: usize = 64;

/// The session's plugs, and how many of them were begun.
pub(crate) struct Plugs {
    list: Vec<Entry>,
    begun: usize,
}

struct Entry {
    plug: Box<dyn Plug>,
    /// The host that the plug was given, in all of its handlers.
    host: Option<Arc<dyn Host>>,
}

impl Plugs {
    pub(crate) fn new(list: Vec<Box<dyn Plug>>) -> Self {
        let entry = |plug| Entry { plug, host: None };
        Self {
            list: list.into_iter().map(entry).collect(),
            begun: 0,
        }
    }

    /// Begins the plugs in order, up to the first that fails. May be dropped in the middle.
    pub(crate) async fn begin(&mut self, ctx: &mut Ctx) -> Result<(), NamedError> {
        for Entry { plug, host } in &mut self.list {
            self.begun += 1;
            host.clone_from(&ctx.host);
            plug.name().clone_into(&mut ctx.plug);
            let limit = plug.limits().on_session;
            let begun = guard("starting", limit, plug.on_session(ctx)).await;
            named(plug.name(), begun)?;
        }
        Ok(())
    }

    pub(crate) fn want_messages(&self) -> bool {
        self.list.iter().any(|entry| entry.plug.wants_messages())
    }

    /// Passes one message through the plugs. What comes out goes on, each in its own direction.
    pub(crate) async fn pass(
        &mut self,
        ctx: &mut Ctx,
        message: Message,
    ) -> Result<Vec<Message>, NamedError> {
        let innermost = ctx.host.clone();
        let passed = self.pass_on(ctx, message).await;
        ctx.host = innermost;
        passed
    }

    async fn pass_on(
        &mut self,
        ctx: &mut Ctx,
        message: Message,
    ) -> Result<Vec<Message>, NamedError> {
        let outside = match message.direction {
            Direction::ToAgent => None,
            Direction::FromAgent => Some(self.list.len()),
        };
        // A message stands behind the plug of its index; none is the runner's end.
        let mut moving = VecDeque::from([(outside, message)]);
        let (mut done, mut steps) = (vec![], 0);
        while let Some((at, mut message)) = moving.pop_front() {
            let Some(index) = self.next(at, message.direction) else {
                done.push(message);
                continue;
            };
            steps += 1;
            if let Some(Entry { plug, host }) = self.list.get_mut(index) {
                match verdict(plug.as_mut(), host, ctx, &message).await? {
                    Verdict::Pass => moving.push_front((Some(index), message)),
                    Verdict::Change(text) => {
                        message.text = text;
                        moving.push_front((Some(index), message));
                    }
                    Verdict::Drop => {}
                    Verdict::Answer(lines) if steps + lines.len() > MESSAGES_MAX * 16 => {
                        let words = "it answers without end".to_owned();
                        return Err(NamedError::of(plug.name(), PlugError::Words(words)));
                    }
                    Verdict::Answer(lines) => {
                        let direction = message.direction.reverse();
                        let answer = |text| (Some(index), Message { direction, text });
                        moving.extend(lines.into_iter().take(MESSAGES_MAX).map(answer));
                    }
                }
            }
        }
        Ok(done)
    }

    /// The next plug that wants to see a message that stands at `at`.
    fn next(&self, at: Option<usize>, direction: Direction) -> Option<usize> {
        let wants = |index: &usize| {
            let entry = self.list.get(*index);
            entry.is_some_and(|entry| entry.plug.wants_messages())
        };
        match direction {
            Direction::ToAgent => (at.map_or(0, |at| at + 1)..self.begun).find(wants),
            Direction::FromAgent => (0..at?.min(self.begun)).rev().find(wants),
        }
    }

    /// Ends what the agent left running, so that nothing changes the workspace while it is committed (case 18).
    pub(crate) async fn clear_away(&self) {
        for entry in &self.list {
            if let Err(error) = entry.plug.clear_away().await {
                tracing::debug!(%error, "ending what the agent left running");
            }
        }
    }

    /// Lets the plugs finish their work after the agent's success, the last one first.
    pub(crate) async fn finish(&mut self, ctx: &mut Ctx) -> Result<(), NamedError> {
        for Entry { plug, host } in self.list.iter_mut().rev() {
            ctx.host.clone_from(host);
            plug.name().clone_into(&mut ctx.plug);
            let limit = plug.limits().finish;
            let finished = guard("finishing", limit, plug.finish(ctx)).await;
            named(plug.name(), finished)?;
        }
        Ok(())
    }

    /// Tears down what was begun, the last one first. Returns every error; the rest went on.
    pub(crate) async fn teardown(&mut self, ctx: &mut Ctx, ended: Ended) -> Vec<NamedError> {
        let mut errors = vec![];
        for Entry { plug, host } in self.list.iter_mut().take(self.begun).rev() {
            ctx.host = host.take();
            plug.name().clone_into(&mut ctx.plug);
            let limit = plug.limits().teardown;
            let down = guard("its teardown", limit, plug.teardown(ctx, ended)).await;
            errors.extend(named(plug.name(), down).err());
        }
        self.begun = 0;
        errors
    }
}

/// The plugs of a session as what its messages pass.
pub(crate) struct PlugPassage<'a> {
    pub(crate) plugs: &'a mut Plugs,
    pub(crate) ctx: &'a mut Ctx,
}

impl Passage for PlugPassage<'_> {
    async fn pass(&mut self, message: Message) -> Result<Vec<Message>, NamedError> {
        match self.looks() {
            true => self.plugs.pass(self.ctx, message).await,
            false => Ok(vec![message]),
        }
    }

    fn looks(&self) -> bool {
        self.plugs.want_messages()
    }
}

async fn verdict(
    plug: &mut dyn Plug,
    host: &Option<Arc<dyn Host>>,
    ctx: &mut Ctx,
    message: &Message,
) -> Result<Verdict, NamedError> {
    ctx.host.clone_from(host);
    plug.name().clone_into(&mut ctx.plug);
    let limit = plug.limits().on_message;
    let verdict = guard("looking at a message", limit, plug.on_message(ctx, message));
    verdict
        .await
        .map_err(|source| NamedError::of(plug.name(), source))
}

/// A handler within its time limit. One that panics fails like any other, so that the teardowns still run.
async fn guard<T>(
    handler: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T, PlugError>>,
) -> Result<T, PlugError> {
    match timeout(limit, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(done)) => done,
        Ok(Err(_panic)) => Err(PlugError::Words(format!("{handler} panicked"))),
        Err(_elapsed) => Err(PlugError::TimeLimit { handler, limit }),
    }
}

fn named(plug: &str, result: Result<(), PlugError>) -> Result<(), NamedError> {
    result.map_err(|source| NamedError::of(plug, source))
}
