//! The plugs that prepare the host: files, and commands.
//!
//! Both act on the host that they see, so before a host plug they act on the runner's machine.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bulkhead_host::{Command, Host, Stdio};
use bulkhead_model::session::{FileContent, FileSpec, SetupStep};
use tokio::{io::AsyncWriteExt as _, time::timeout};

use super::inside::{collect, run};
use crate::{
    plug::{Ctx, Ended, Plug, PlugError, TimeLimits},
    session,
    wire::SessionDelivery,
};

/// The most bytes of one file.
const MAX_FILE: u64 = 64 << 20;
const PUT: &str =
    r#"case $1 in */*) mkdir -p -- "${1%/*}";; esac && cat > "$1" && chmod "$2" "$1""#;

pub(super) struct FilesPlug {
    files: Vec<FileSpec>,
    delivery: Arc<SessionDelivery>,
}

impl FilesPlug {
    pub(super) const fn new(files: Vec<FileSpec>, delivery: Arc<SessionDelivery>) -> Self {
        Self { files, delivery }
    }

    async fn content(&self, file: &FileSpec) -> Result<Vec<u8>, PlugError> {
        let from = match &file.content {
            FileContent::Text(text) => return Ok(text.clone().into_bytes()),
            FileContent::From(from) => session::path(&self.delivery.order, from),
        };
        read_small(&from)
            .await
            .map_err(|error| PlugError::because(format!("reading {}", from.display()), error))
    }
}

async fn read_small(path: &PathBuf) -> std::io::Result<Vec<u8>> {
    let size = tokio::fs::metadata(path).await?.len();
    if size > MAX_FILE {
        let words = format!("it has {size} bytes, and at most {MAX_FILE} are read");
        return Err(std::io::Error::other(words));
    }
    tokio::fs::read(path).await
}

#[async_trait]
impl Plug for FilesPlug {
    fn name(&self) -> &str {
        "files"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let host = ctx.host()?;
        for file in &self.files {
            let content = self.content(file).await?;
            put(&*host, ctx, file, &content).await?;
        }
        Ok(())
    }
}

async fn put(host: &dyn Host, ctx: &Ctx, file: &FileSpec, content: &[u8]) -> Result<(), PlugError> {
    // A path that begins with a dash is no option of the programs that get it.
    let path = match file.path.strip_prefix('-') {
        Some(_) => format!("./{}", file.path),
        None => file.path.clone(),
    };
    let mode = format!("{:04o}", file.mode.unwrap_or(0o644));
    let mut command =
        Command::new(["sh", "-c", PUT, "bulkhead-file", &path, &mode]).stdio(Stdio::PIPES);
    command.cwd.clone_from(&ctx.agent.cwd);
    let mut process = host.spawn(command).await?;
    if let Some(stdin) = &mut process.stdin {
        // A process that ended early says why on its standard error.
        drop(stdin.write_all(content).await);
        drop(stdin.shutdown().await);
    }
    let what = format!("writing {} on {}", file.path, host.describe());
    collect(process).await.check(&what)?;
    Ok(())
}

pub(super) struct SetupPlug {
    steps: Vec<SetupStep>,
    /// How many of them were begun: those have something to tear down.
    begun: usize,
    /// Where and with which variables they ran: later plugs change both for the agent.
    place: Place,
}

#[derive(Debug, Clone, Default)]
struct Place {
    cwd: Option<String>,
    env: BTreeMap<String, String>,
}

impl SetupPlug {
    pub(super) const fn new(steps: Vec<SetupStep>) -> Self {
        Self {
            steps,
            begun: 0,
            place: Place {
                cwd: None,
                env: BTreeMap::new(),
            },
        }
    }
}

#[async_trait]
impl Plug for SetupPlug {
    fn name(&self) -> &str {
        "setup"
    }

    /// Each step has its own.
    fn limits(&self) -> TimeLimits {
        let steps = self.steps.iter();
        let sum: u64 = steps.map(|step| step.timeout_ms).sum();
        TimeLimits {
            on_session: Duration::from_millis(sum) + Duration::from_secs(10),
            teardown: Duration::from_secs(120),
            ..TimeLimits::default()
        }
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let host = ctx.host()?;
        self.place = Place {
            cwd: ctx.agent.cwd.clone(),
            env: ctx.agent.env.clone(),
        };
        for step in &self.steps {
            self.begun += 1;
            let limit = Duration::from_millis(step.timeout_ms);
            let ran = timeout(limit, shell(&*host, ctx, &self.place, &step.run)).await;
            ran.map_err(|_| {
                PlugError::Words(format!("{:?} took longer than {limit:?}", step.run))
            })??;
        }
        Ok(())
    }

    async fn teardown(&mut self, ctx: &mut Ctx, _: Ended) -> Result<(), PlugError> {
        let lines = self.steps.iter().take(self.begun).rev();
        let lines: Vec<_> = lines.filter_map(|step| step.teardown.clone()).collect();
        let Some(host) = ctx.host().ok().filter(|_| !lines.is_empty()) else {
            return Ok(());
        };
        let mut first = None;
        for line in lines {
            if let Err(error) = shell(&*host, ctx, &self.place, &line).await {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }
}

async fn shell(host: &dyn Host, ctx: &Ctx, place: &Place, line: &str) -> Result<(), PlugError> {
    let mut command = Command::shell(line).envs(place.env.clone());
    command.cwd.clone_from(&place.cwd);
    let helper = run(host, command).await?;
    for said in [&helper.stderr, &*String::from_utf8_lossy(&helper.stdout)] {
        if !said.trim().is_empty() {
            ctx.log().say(said.trim_end()).await;
        }
    }
    helper.check(&format!("{line:?}"))?;
    Ok(())
}
