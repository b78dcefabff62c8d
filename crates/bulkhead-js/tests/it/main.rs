//! Script plugs on real hosts: what they find, what they can do, and what becomes of their errors.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod agent;
#[path = "../../../zygote/tests/it/attacker.rs"]
#[expect(dead_code, reason = "the zygote's own tests use the rest")]
mod attacker;
mod examples;
mod faults;
mod files;
mod invocations;
mod machine;
mod messages;
mod node;
mod sessions;
#[path = "../../../zygote/tests/it/support.rs"]
#[expect(dead_code, reason = "the zygote's own tests use the rest")]
mod support;
mod types;
mod web;
mod world;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bulkhead_host::{Host, LocalConfig, LocalHost};
use bulkhead_js::JsPlugs;
use bulkhead_session::plug::{
    AgentDraft, Ended, Plug, PlugError, ScriptPlugs as _, ScriptSpec, SessionInfo, TimeLimits,
    Trial,
};
use tokio_util::sync::CancellationToken;

/// A program that is a zygote.
const ZYGOTE: &str = env!("CARGO_BIN_EXE_bulkhead-js");

/// One plug in a file of its own, on this machine as its host.
struct Bench {
    dir: tempfile::TempDir,
    trial: Trial,
    host: Arc<dyn Host>,
    signal: CancellationToken,
    limits: TimeLimits,
    config: serde_json::Value,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let host: Arc<dyn Host> = Arc::new(LocalHost::new(LocalConfig::new(home)));
        let signal = CancellationToken::new();
        let session = SessionInfo {
            id: "s-1".into(),
            dir: None,
            resumed: false,
        };
        let trial = Trial::new(
            "mine",
            session,
            Some(Arc::clone(&host)),
            AgentDraft::default(),
            signal.clone(),
        );
        Self {
            dir,
            trial,
            host,
            signal,
            limits: TimeLimits::of(Duration::from_secs(30)),
            config: serde_json::Value::Null,
        }
    }

    /// A limit for beginning that a plug which hangs is soon over.
    fn impatient() -> Self {
        let limits = TimeLimits {
            on_session: Duration::from_millis(1500),
            ..TimeLimits::of(Duration::from_secs(30))
        };
        Self {
            limits,
            ..Self::new()
        }
    }

    fn file(&self, name: &str, source: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, source).unwrap();
        path
    }

    async fn load(&self, name: &str, source: &str) -> Result<Box<dyn Plug>, PlugError> {
        self.load_file(self.file(name, source)).await
    }

    async fn load_file(&self, file: PathBuf) -> Result<Box<dyn Plug>, PlugError> {
        let spec = ScriptSpec {
            name: "mine".into(),
            file,
            config: self.config.clone(),
        };
        JsPlugs::with_limits(self.limits).unwrap().load(spec).await
    }

    /// Loads a plug and begins it.
    async fn begin(&mut self, name: &str, source: &str) -> Result<Box<dyn Plug>, PlugError> {
        let mut plug = self.load(name, source).await?;
        plug.on_session(&mut self.trial.ctx).await?;
        Ok(plug)
    }

    /// Runs the body of an `onSession` and gives the lines that it logged.
    async fn run(&mut self, body: &str) -> Vec<String> {
        let source = format!(
            "export default async function onSession(ctx) {{\nconst {{ host, log }} = ctx; const {{ fs }} = host;\n{body}\n}}"
        );
        let begun = self.begin("run.js", &source).await;
        let said = self.trial.said();
        let mut plug = begun.unwrap_or_else(|error| panic!("{error}: {said:#?}"));
        self.end(&mut *plug).await.unwrap();
        [said, self.trial.said()].concat()
    }

    async fn end(&mut self, plug: &mut dyn Plug) -> Result<(), PlugError> {
        let down = plug.teardown(&mut self.trial.ctx, Ended::Idle).await;
        self.host.teardown().await.unwrap();
        down
    }
}

/// The words of the error of a plug that must not load or begin.
async fn refusal(bench: &mut Bench, name: &str, source: &str) -> String {
    match bench.begin(name, source).await {
        Ok(_) => panic!("it began"),
        Err(error) => error.to_string(),
    }
}
