//! The plug that clones the run's branch into the sandbox, and commits and pushes what the phase changed.
//!
//! Both happen inside, through the phase gateway, with the steps of `bulkhead_git::inside`; the token is in
//! those steps' environment only.

use std::time::Duration;

use async_trait::async_trait;
use bulkhead_git::inside::{self, Changed, Step};
use bulkhead_host::{Command, ExitStatus, Host};
use bulkhead_model::{GitOrder, Stage};
use bulkhead_sandbox::WORKSPACE_DIR;
use secrecy::{ExposeSecret as _, SecretString};

use super::inside::{Helper, run};
use crate::{
    agents::GATEWAY,
    plug::{Ctx, Plug, PlugError, TimeLimits},
};

pub(super) struct WorkspacePlug {
    git: GitOrder,
    token: SecretString,
}

impl WorkspacePlug {
    pub(super) const fn new(git: GitOrder, token: SecretString) -> Self {
        Self { git, token }
    }

    async fn step(&self, ctx: &Ctx, host: &dyn Host, step: &Step) -> Result<Helper, PlugError> {
        let env = inside::environment(&self.git, GATEWAY, &self.token);
        let env = env.into_iter();
        let command = Command::new(step.argv.clone())
            .cwd(WORKSPACE_DIR)
            .envs(env.map(|(name, value)| (name, value.expose_secret().to_owned())))
            .envs(step.env.iter().cloned());
        let helper = run(host, command).await?;
        match helper.status {
            ExitStatus::Code(0) => Ok(helper),
            ExitStatus::Code(code) => {
                let said = helper.stderr.trim();
                if !said.is_empty() {
                    ctx.out.say(said).await;
                }
                let (doing, why) = (step.doing, step.explain(code));
                Err(PlugError::Words(match said {
                    "" => format!("{doing}: {why}"),
                    said => format!("{said}\n{doing}: {why}"),
                }))
            }
            _ => Ok(helper.check(step.doing)?),
        }
    }
}

#[async_trait]
impl Plug for WorkspacePlug {
    fn name(&self) -> &str {
        "workspace"
    }

    /// A big repository takes a while; the phase's own time limit holds too.
    fn limits(&self) -> TimeLimits {
        TimeLimits::of(Duration::from_secs(15 * 60))
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let host = ctx.host()?;
        for step in inside::clone_steps(&self.git, GATEWAY, WORKSPACE_DIR) {
            self.step(ctx, &*host, &step).await?;
        }
        ctx.out.stage(Stage::WorkspaceReady).await;
        Ok(())
    }

    async fn finish(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let host = ctx.host()?;
        let mut finish = None;
        for step in inside::finish_steps(&self.git, GATEWAY, WORKSPACE_DIR) {
            let helper = self.step(ctx, &*host, &step).await?;
            finish = inside::parse_finish(&helper.stdout).or(finish);
        }
        let Some(finish) = finish else {
            let words = "committing and pushing: git did not say which commit it made";
            return Err(PlugError::Words(words.to_owned()));
        };
        for path in &finish.left_out {
            let words = format!("{path} is a git repository of its own and was not committed");
            ctx.out.say(&words).await;
        }
        if finish.changed == Changed::Pushed {
            ctx.results.head = Some(finish.commit.to_string());
            ctx.out.stage(Stage::Pushed).await;
        }
        Ok(())
    }
}
