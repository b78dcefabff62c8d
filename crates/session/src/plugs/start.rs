//! The last plug of a session: whether the agent's program is on its host, and what it needs there.

use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_host::{Command, Host};
use bulkhead_model::{AgentSpec, Work};

use super::{agent::put_file, inside::run};
use crate::{
    agents::{BULKHEAD_INSIDE, READY},
    hosts::is_local,
    plug::{Ctx, Plug, PlugError},
    wire::SessionDelivery,
};

pub(super) struct StartPlug(pub(super) Arc<SessionDelivery>);

#[async_trait]
impl Plug for StartPlug {
    fn name(&self) -> &str {
        "agent"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let Work::Agent { agent, .. } = &self.0.order.work else {
            return Ok(());
        };
        let host = ctx.host()?;
        // The agent's own variables give way to what the session says.
        for (name, value) in agent.env.clone() {
            ctx.agent.env.entry(name).or_insert(value);
        }
        if is_local(&*host)
            && let (Some(first), Some(program)) = (ctx.agent.argv.first_mut(), &self.0.program)
            && first == BULKHEAD_INSIDE
        {
            *first = program.to_string_lossy().into_owned();
        }
        find_program(&*host, ctx, agent).await?;
        if has_a_home_of_its_own(&*host) {
            for (path, text) in &agent.home_files {
                put_file(&*host, path, text).await?;
            }
        }
        Ok(())
    }
}

/// Whether the agent's home goes with the session. A person's own home is never written to.
fn has_a_home_of_its_own(host: &dyn Host) -> bool {
    let layers = host.isolation();
    layers
        .last()
        .is_some_and(|layer| matches!(layer.kind, "sandbox" | "docker"))
}

async fn find_program(host: &dyn Host, ctx: &Ctx, agent: &AgentSpec) -> Result<(), PlugError> {
    let Some(program) = ctx.agent.argv.first() else {
        let words = format!("the agent {} has no command line", agent.name);
        return Err(PlugError::Words(words));
    };
    let look = [
        "sh",
        "-c",
        r#"command -v -- "$1""#,
        "bulkhead-look",
        program,
    ];
    let mut command = Command::new(look);
    if let Some(path) = ctx.agent.env.get("PATH") {
        command = command.env("PATH", path);
    }
    command.cwd.clone_from(&ctx.agent.cwd);
    if run(host, command).await?.status.success() {
        return Ok(());
    }
    let ready = READY.iter().find(|ready| ready.name == agent.name);
    let install = ready.map_or_else(String::new, |ready| format!(" (`{}`)", ready.install));
    Err(PlugError::Words(format!(
        "the program {program:?} of the agent {} is not on {}: install it there{install}, or give its path with \
         `agent: {{name: {}, command: [PATH, …]}}`",
        agent.name,
        host.describe(),
        agent.name
    )))
}
