//! The plug that prepares the agent: its home files, and whether its program is there at all.

use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_host::{Command, Host, Stdio};
use bulkhead_model::{AgentSpec, Work};
use bulkhead_sandbox::HOME_DIR;
use tokio::io::AsyncWriteExt as _;

use super::inside::{collect, run};
use crate::{
    agents::READY,
    inside_path,
    plug::{Ctx, Plug, PlugError},
    wire::Delivery,
};

const PUT: &str = r#"mkdir -p "$(dirname "$1")" && cat > "$1""#;

pub(super) struct AgentPlug(pub(super) Arc<Delivery>);

#[async_trait]
impl Plug for AgentPlug {
    fn name(&self) -> &str {
        "agent"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let Work::Agent { agent, .. } = &self.0.order.work else {
            return Ok(());
        };
        let host = ctx.host()?;
        let toolchains = &self.0.order.toolchains;
        find_program(&*host, agent, &inside_path(toolchains)).await?;
        for (path, text) in &agent.home_files {
            put_file(&*host, path, text).await?;
        }
        let env = agent.env.clone();
        // The agent's own variables give way to what the workflow says.
        for (name, value) in env {
            ctx.agent.env.entry(name).or_insert(value);
        }
        Ok(())
    }
}

/// A clear error before any work, rather than a failed start after it.
pub(super) async fn find_program(
    host: &dyn Host,
    agent: &AgentSpec,
    path: &str,
) -> Result<(), PlugError> {
    let Some(program) = agent.argv.first() else {
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
    let command = Command::new(look).env("PATH", path);
    if run(host, command).await?.status.success() {
        return Ok(());
    }
    let ready = READY.iter().find(|ready| ready.name == agent.name);
    let install = ready.map_or_else(String::new, |ready| format!(" (`{}`)", ready.install));
    Err(PlugError::Words(format!(
        "the program {program:?} of the agent {} is not in the sandbox; searched {path}. Install it on this \
         machine below /usr{install}, or have the operator list its directory as a toolchain",
        agent.name
    )))
}

pub(super) async fn put_file(host: &dyn Host, path: &str, text: &str) -> Result<(), PlugError> {
    let target = format!("{HOME_DIR}/{path}");
    let command = Command::new(["sh", "-c", PUT, "bulkhead-home", &target]).stdio(Stdio::PIPES);
    let mut process = host.spawn(command).await?;
    if let Some(stdin) = &mut process.stdin {
        // A process that ended early says why on its standard error.
        drop(stdin.write_all(text.as_bytes()).await);
    }
    let what = format!("writing {path} into the agent's home");
    collect(process).await.check(&what)?;
    Ok(())
}
