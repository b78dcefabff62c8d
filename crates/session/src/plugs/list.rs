//! The ordered list: forwards to begin, backwards to finish and to tear down.

use tokio::time::timeout;

use super::{
    Ctx, Ended, Plug, PlugError, agent::AgentPlug, artifacts::ArtifactsPlug, door::DoorPlug,
    environment::EnvironmentPlug, sandbox::SandboxPlug, workspace::WorkspacePlug,
};
use crate::wire::Delivery;

/// A handler failed, and whose it was.
#[derive(Debug, thiserror::Error)]
#[error("plug {plug}")]
pub(crate) struct NamedError {
    pub(crate) plug: &'static str,
    #[source]
    pub(crate) source: PlugError,
}

impl NamedError {
    pub(crate) const fn of(plug: &'static str, source: PlugError) -> Self {
        Self { plug, source }
    }
}

/// The session's plugs, and how many of them were begun.
pub(crate) struct Plugs {
    list: Vec<Box<dyn Plug>>,
    begun: usize,
}

impl Plugs {
    /// The plugs of a phase.
    pub(crate) fn of_phase(delivery: &Delivery) -> Self {
        let (sandbox, listeners) = SandboxPlug::new(delivery);
        let mut list: Vec<Box<dyn Plug>> = vec![
            Box::new(sandbox),
            Box::new(DoorPlug::new(listeners)),
            Box::new(EnvironmentPlug),
        ];
        if let Some(git) = &delivery.order.git {
            list.push(Box::new(WorkspacePlug::new(git.clone())));
        }
        list.push(Box::new(ArtifactsPlug));
        list.push(Box::new(AgentPlug));
        Self::new(list)
    }

    fn new(list: Vec<Box<dyn Plug>>) -> Self {
        Self { list, begun: 0 }
    }

    /// Begins the plugs in order, up to the first that fails. May be dropped in the middle.
    pub(crate) async fn begin(&mut self, ctx: &mut Ctx) -> Result<(), NamedError> {
        for plug in &mut self.list {
            self.begun += 1;
            let (name, limit) = (plug.name(), plug.limit());
            let begun = timeout(limit, plug.on_session(ctx)).await;
            named(name, begun.unwrap_or(Err(PlugError::TimeLimit(limit))))?;
        }
        Ok(())
    }

    /// Ends what the agent left running, so that nothing changes the workspace while it is committed (case 18).
    pub(crate) async fn clear_away(&self) {
        for plug in &self.list {
            if let Err(error) = plug.clear_away().await {
                tracing::debug!(%error, "ending what the agent left running");
            }
        }
    }

    /// Lets the plugs finish their work after the agent's success, the last one first.
    pub(crate) async fn finish(&mut self, ctx: &mut Ctx) -> Result<(), NamedError> {
        for plug in self.list.iter_mut().rev() {
            let (name, limit) = (plug.name(), plug.limit());
            let finished = timeout(limit, plug.finish(ctx)).await;
            named(name, finished.unwrap_or(Err(PlugError::TimeLimit(limit))))?;
        }
        Ok(())
    }

    /// Tears down what was begun, the last one first. Returns every error; the rest went on.
    pub(crate) async fn teardown(&mut self, ctx: &mut Ctx, ended: Ended) -> Vec<NamedError> {
        let mut errors = vec![];
        for plug in self.list.iter_mut().take(self.begun).rev() {
            let (name, limit) = (plug.name(), plug.limit());
            let down = timeout(limit, plug.teardown(ctx, ended)).await;
            errors.extend(named(name, down.unwrap_or(Err(PlugError::TimeLimit(limit)))).err());
        }
        self.begun = 0;
        errors
    }
}

fn named(plug: &'static str, result: Result<(), PlugError>) -> Result<(), NamedError> {
    result.map_err(|source| NamedError::of(plug, source))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use async_trait::async_trait;
    use tokio::sync::mpsc;

    use super::*;
    use crate::{outbox::Outbox, wire::test_delivery};

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
        fn name(&self) -> &'static str {
            self.name
        }

        fn limit(&self) -> Duration {
            Duration::from_millis(300)
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
        let (_, artifacts) = mpsc::channel(1);
        Ctx::new(Box::new(test_delivery()), out, artifacts)
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
                "plug a: it took longer than its limit of 300ms"
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
            "plug a: it took longer than its limit of 300ms"
        );
    }
}
